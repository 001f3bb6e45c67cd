#include "model/head_loss.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/error.h"
#include "model/fused.h"
#include "model/micro_batch.h"
#include "model/open_gradient.h"
#include "model/product.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Sum over rows, fp64.
Tensor negative_log_likelihood(const Tensor& logits, const Tensor& lse, const Tensor& targets) {
  const Tensor chosen = logits.gather(1, targets.unsqueeze(1)).squeeze(1);
  return lse.sub(chosen).sum(torch::kFloat64);
}

int64_t usual_max_logits(const Tensor& x) {
  return int64_t{x.is_cpu() ? 16 : 64} << 20;
}

struct HeadLoss : torch::autograd::Function<HeadLoss> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& targets, const HeadLossOptions& options) {
    const int64_t most = options.max_logits > 0 ? options.max_logits : usual_max_logits(x);
    const int64_t chunk = std::max<int64_t>(1, most / weight.size(0));
    Tensor sum = torch::zeros({}, x.options().dtype(torch::kFloat64));
    Tensor kept;
    Tensor lse = at::empty({x.size(0)}, x.options().dtype(torch::kFloat32));
    for (int64_t begin = 0; begin < x.size(0); begin += chunk) {
      const int64_t rows = std::min(chunk, x.size(0) - begin);
      const Tensor logits = matrix_product(x.narrow(0, begin, rows), weight.t());
      Tensor of_rows = lse.narrow(0, begin, rows);
      of_rows.copy_(log_sum_exp(logits));
      sum += negative_log_likelihood(logits, of_rows, targets.narrow(0, begin, rows));
      if (rows == x.size(0)) kept = logits;
    }
    ctx->save_for_backward({x, weight, targets, lse, kept});
    ctx->saved_data["chunk"] = chunk;
    ctx->saved_data["trained_tokens"] = options.trained_tokens;
    return (sum / options.trained_tokens).to(torch::kFloat32);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &targets = saved[2], &kept = saved[4];
    const int64_t chunk = ctx->saved_data["chunk"].toInt();
    const Tensor scale = dys[0] / ctx->saved_data["trained_tokens"].toDouble();
    Tensor dx = ctx->needs_input_grad(0) ? at::empty_like(x) : Tensor();
    Tensor dweight;
    for (int64_t begin = 0; begin < x.size(0); begin += chunk) {
      const int64_t rows = std::min(chunk, x.size(0) - begin);
      const Tensor part = x.narrow(0, begin, rows);
      const Tensor logits = kept.defined() ? kept : matrix_product(part, weight.t());
      logit_gradient_(logits, saved[3].narrow(0, begin, rows), targets.narrow(0, begin, rows),
                      scale);
      if (dx.defined()) dx.narrow(0, begin, rows).copy_(matrix_product(logits, weight));
      if (!ctx->needs_input_grad(1)) continue;
      const Tensor more = deliver_product(weight, logits, part);
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
