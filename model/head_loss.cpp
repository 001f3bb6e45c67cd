#include "model/head_loss.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/error.h"
#include "model/micro_batch.h"
#include "model/open_gradient.h"
#include "model/product.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// fp32 log-probabilities [rows, vocab] in one buffer.
Tensor log_probabilities(const Tensor& x, const Tensor& weight) {
  Tensor logits = matrix_product(x, weight.t()).to(torch::kFloat32);
  return at::_log_softmax_out(logits, logits, 1, false);
}

Tensor negative_log_likelihood(const Tensor& log_probs, const Tensor& targets) {
  return log_probs.gather(1, targets.unsqueeze(1)).sum(torch::kFloat64).neg();
}

// Turns log-probabilities into probabilities minus one at the target, in place.
Tensor logit_gradient(Tensor log_probs, const Tensor& targets) {
  const Tensor ones = torch::ones({targets.size(0), 1}, log_probs.options());
  return log_probs.exp_().scatter_add_(1, targets.unsqueeze(1), ones.neg());
}

// The two products of one chunk's gradient. fp32 scales the small factors; narrower dtypes scale
// the logits' gradient while they round it.
class ChunkGradient {
 public:
  ChunkGradient(const Tensor& logits, const Tensor& scale, torch::ScalarType dtype)
      : scale_(scale), logits_(logits), wide_(dtype == torch::kFloat32) {
    if (wide_) return;
    logits_ = at::empty(logits.sizes(), logits.options().dtype(dtype));
    at::mul_out(logits_, logits, scale);
  }

  void write_dx(Tensor dx, const Tensor& weight) const {
    const Tensor product = matrix_product(logits_, weight);
    wide_ ? at::mul_out(dx, product, scale_) : dx.copy_(product);
  }

  // Undefined when the weight's gradient is open.
  Tensor dweight(const Tensor& weight, const Tensor& x) const {
    return deliver_product(weight, logits_, wide_ ? x * scale_ : x);
  }

 private:
  Tensor scale_;
  Tensor logits_;
  bool wide_;
};

struct HeadLoss : torch::autograd::Function<HeadLoss> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& targets, const HeadLossOptions& options) {
    const int64_t chunk = std::max<int64_t>(1, options.max_logits / weight.size(0));
    Tensor sum = torch::zeros({}, x.options().dtype(torch::kFloat64));
    Tensor kept;
    for (int64_t begin = 0; begin < x.size(0); begin += chunk) {
      const int64_t rows = std::min(chunk, x.size(0) - begin);
      const Tensor log_probs = log_probabilities(x.narrow(0, begin, rows), weight);
      sum += negative_log_likelihood(log_probs, targets.narrow(0, begin, rows));
      if (rows == x.size(0)) kept = log_probs;
    }
    ctx->save_for_backward({x, weight, targets, kept});
    ctx->saved_data["chunk"] = chunk;
    ctx->saved_data["trained_tokens"] = options.trained_tokens;
    return (sum / options.trained_tokens).to(torch::kFloat32);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &targets = saved[2], &kept = saved[3];
    const int64_t chunk = ctx->saved_data["chunk"].toInt();
    const Tensor scale = dys[0] / ctx->saved_data["trained_tokens"].toDouble();
    Tensor dx = ctx->needs_input_grad(0) ? at::empty_like(x) : Tensor();
    Tensor dweight;
    for (int64_t begin = 0; begin < x.size(0); begin += chunk) {
      const int64_t rows = std::min(chunk, x.size(0) - begin);
      const Tensor part = x.narrow(0, begin, rows);
      const Tensor log_probs = kept.defined() ? kept : log_probabilities(part, weight);
      const ChunkGradient gradient(logit_gradient(log_probs, targets.narrow(0, begin, rows)), scale,
                                   x.scalar_type());
      if (dx.defined()) gradient.write_dx(dx.narrow(0, begin, rows), weight);
      if (!ctx->needs_input_grad(1)) continue;
      const Tensor more = gradient.dweight(weight, part);
      if (more.defined()) dweight = dweight.defined() ? dweight.add_(more) : more;
    }
    return {dx, dweight, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor head_loss(const Tensor& x, const Tensor& weight, const Tensor& targets,
                 const HeadLossOptions& options) {
  ZEROTH_CHECK(options.trained_tokens > 0, "the loss of {} tokens", options.trained_tokens);
  const Tensor trained = targets.ne(kUntrained).nonzero().squeeze(1);
  if (trained.size(0) == targets.size(0)) return HeadLoss::apply(x, weight, targets, options);
  return HeadLoss::apply(x.index_select(0, trained), weight, targets.index_select(0, trained),
                         options);
}

}  // namespace zeroth::model
