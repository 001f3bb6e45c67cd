#include "model/blocks/head.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/blocks/linear.h"
#include "model/blocks/open_gradient.h"
#include "model/kernels/fused.h"
#include "model/kernels/product.h"
#include "model/micro_batch.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of the rows of a chunk, [rows] fp32: log(sum(exp)) of their logits, and those at the targets.
struct RowSums {
  Tensor lse, chosen;
  // Sum of negative log-likelihoods, fp64.
  Tensor loss() const { return lse.sub(chosen).sum(torch::kFloat64); }
};

RowSums sums_of(const Tensor& logits, const Tensor& targets) {
  return {log_sum_exp(logits), logits.gather(1, targets.unsqueeze(1)).squeeze(1)};
}

// The same over the parts of all ranks: each has summed its own, and one of them has the target.
RowSums sums_of(const Tensor& logits, const Tensor& targets, const Vocabulary& vocabulary) {
  const auto [rows, here] = vocabulary.rows_of(targets);
  const Tensor own = log_sum_exp(logits);
  const Tensor most = own.clone();
  vocabulary.ranks->all_reduce(most, comm::Reduce::kMax, "largest logits");
  const Tensor chosen = logits.gather(1, rows.unsqueeze(1)).squeeze(1).to(torch::kFloat32);
  const Tensor sums = at::stack({own.sub(most).exp_(), chosen.mul(here)});
  vocabulary.ranks->all_reduce(sums, comm::Reduce::kSum, "sums of logits");
  return {sums[0].log().add_(most), sums[1]};
}

RowSums sums_of(const Tensor& logits, const Tensor& targets,
                const std::optional<Vocabulary>& shared) {
  return shared ? sums_of(logits, targets, *shared) : sums_of(logits, targets);
}

// As rows of this rank's logits.
Tensor own_targets(const Tensor& targets, const std::optional<Vocabulary>& shared) {
  return shared ? targets - shared->begin : targets;
}

// The same on all ranks that share the vocabulary.
int64_t chunk_rows(const Tensor& x, const Tensor& weight, const HeadLossOptions& options) {
  const int64_t vocab = options.shared ? options.shared->most : weight.size(0);
  if (options.max_logits > 0) return std::max<int64_t>(1, options.max_logits / vocab);
  return usual_chunk_rows(x.device().type(), x.scalar_type(), vocab);
}

// x [rows, hidden], weight [vocab, hidden] -> [rows, vocab]. On a GPU rows begin at multiples of 64
// elements, whatever the vocabulary: its products and kernels are slow on others.
Tensor logits_of(const Tensor& x, const Tensor& weight) {
  if (x.is_cpu()) return matrix_product(x, weight.t());
  constexpr int64_t kMultiple = 64;
  const int64_t vocab = weight.size(0);
  const int64_t padded = (vocab + kMultiple - 1) / kMultiple * kMultiple;
  const Tensor logits = at::empty({x.size(0), padded}, x.options()).narrow(1, 0, vocab);
  write_matrix_product(logits, x, weight.t());
  return logits;
}

struct Wanted {
  bool dx = false;
  bool dweight = false;
};

// The gradients of several chunks, each taken while its logits are there.
struct Gradients {
  Tensor dx, dweight;
  bool empty = true;

  Gradients(const Tensor& x, const Tensor& weight, const Wanted& wanted) {
    if (wanted.dx) dx = at::empty_like(x);
    if (!wanted.dweight) return;
    const Tensor wide = at::empty({0}, weight.options().dtype(torch::kFloat32));
    const bool widens = adds_wider(wide, x);
    dweight = at::empty(weight.sizes(), widens ? wide.options() : weight.options());
  }

  void add(const Tensor& dlogits, const Tensor& x, const Tensor& weight, int64_t begin) {
    if (dx.defined()) write_matrix_product(dx.narrow(0, begin, x.size(0)), dlogits, weight);
    if (!dweight.defined()) return;
    empty ? write_matrix_product(dweight, dlogits.t(), x)
          : add_matrix_product(dweight, dlogits.t(), x);
    empty = false;
  }
};

struct HeadLoss : torch::autograd::Function<HeadLoss> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& targets, const HeadLossOptions& options,
                        const Wanted& wanted) {
    const int64_t chunk = chunk_rows(x, weight, options);
    const bool at_once =
        (wanted.dx || wanted.dweight) && options.gradient != 0 && x.size(0) > chunk;
    Gradients gradients(x, weight, at_once ? wanted : Wanted());
    const Tensor scale =
        torch::full({}, options.gradient / options.divisor, x.options().dtype(torch::kFloat32));
    Tensor sum = torch::zeros({}, x.options().dtype(torch::kFloat64));
    Tensor kept;
    Tensor lse = at::empty({x.size(0)}, x.options().dtype(torch::kFloat32));
    for (int64_t begin = 0; begin < x.size(0); begin += chunk) {
      const int64_t rows = std::min(chunk, x.size(0) - begin);
      const Tensor part = x.narrow(0, begin, rows), of_rows = targets.narrow(0, begin, rows);
      const Tensor logits = logits_of(part, weight);
      const RowSums sums = sums_of(logits, of_rows, options.shared);
      lse.narrow(0, begin, rows).copy_(sums.lse);
      sum += sums.loss();
      if (rows == x.size(0)) kept = logits;
      if (!at_once) continue;
      logit_gradient_(logits, sums.lse, own_targets(of_rows, options.shared), scale);
      gradients.add(logits, part, weight, begin);
    }
    ctx->save_for_backward({x, weight, own_targets(targets, options.shared), lse, kept,
                            gradients.dx, gradients.dweight, options.entering});
    ctx->saved_data["chunk"] = chunk;
    ctx->saved_data["divisor"] = options.divisor;
    ctx->saved_data["gradient"] = at_once ? options.gradient : 0.0;
    return (sum / options.divisor).to(torch::kFloat32);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const double expected = ctx->saved_data["gradient"].toDouble();
    return expected != 0 ? deliver(saved, dys[0], expected) : visit_again(ctx, saved, dys[0]);
  }

 private:
  // The gradients were made for one that enters as `expected`, and `dy` enters.
  static variable_list deliver(const variable_list& saved, const Tensor& dy, double expected) {
    Tensor dx = saved[5], dweight = saved[6];
    const Tensor& announced = saved[7];
    if (!announced.defined() || announced.const_data_ptr() != dy.const_data_ptr()) {
      const Tensor factor = dy / expected;
      if (dx.defined()) dx.mul_(factor);
      if (dweight.defined()) dweight.mul_(factor);
    }
    if (dweight.defined()) dweight = deliver_gradient(saved[1], dweight);
    return {dx, dweight, Tensor(), Tensor(), Tensor()};
  }

  static variable_list visit_again(AutogradContext* ctx, const variable_list& saved,
                                   const Tensor& dy) {
    const Tensor &x = saved[0], &weight = saved[1], &targets = saved[2], &kept = saved[4];
    const int64_t chunk = ctx->saved_data["chunk"].toInt();
    const Tensor scale = dy / ctx->saved_data["divisor"].toDouble();
    const Tensor dx = ctx->needs_input_grad(0) ? at::empty_like(x) : Tensor();
    Tensor dweight;
    for (int64_t begin = 0; begin < x.size(0); begin += chunk) {
      const int64_t rows = std::min(chunk, x.size(0) - begin);
      const Tensor part = x.narrow(0, begin, rows);
      const Tensor logits = kept.defined() ? kept : logits_of(part, weight);
      logit_gradient_(logits, saved[3].narrow(0, begin, rows), targets.narrow(0, begin, rows),
                      scale);
      if (dx.defined()) write_matrix_product(dx.narrow(0, begin, rows), logits, weight);
      if (!ctx->needs_input_grad(1)) continue;
      const Tensor more = deliver_product(weight, logits, part);
      if (more.defined()) dweight = dweight.defined() ? dweight.add_(more) : more;
    }
    // The loss depends on the weight even where no row is trained: its gradient is zero, not
    // absent.
    if (x.size(0) == 0 && ctx->needs_input_grad(1)) {
      dweight = deliver_gradient(weight, at::zeros({1, 1}, weight.options()).expand_as(weight));
    }
    return {dx, dweight, Tensor(), Tensor(), Tensor()};
  }
};

Tensor of_all(const Tensor& x, const Tensor& weight, const Tensor& targets,
              const HeadLossOptions& options) {
  const bool records = torch::GradMode::is_enabled();
  const Wanted wanted{.dx = records && x.requires_grad(),
                      .dweight = records && weight.requires_grad()};
  return HeadLoss::apply(x, weight, targets, options, wanted);
}

}  // namespace

using torch::Tensor;

Head::Head(const ModelSpec& spec, const Tensor& tied_weight, int64_t max_logits,
           TensorRanksPtr ranks)
    : Block("head"), vocabulary_(spec.vocab_size, std::move(ranks)), max_logits_(max_logits) {
  norm_ =
      register_module("norm", std::make_shared<Norm>(spec.norm, spec.hidden_size, spec.norm_eps));
  weight_ = tied_weight.defined()
                ? tied_weight
                : torch::empty({vocabulary_.own, spec.hidden_size},
                               torch::dtype(torch::kFloat32).device(torch::kMeta));
  weight_ = register_parameter("weight", weight_);
}

std::optional<Splits> Head::splits() const {
  if (!vocabulary_.ranks) return std::nullopt;
  return Splits{{"weight", vocabulary_.split("weight", weight_.size(1))}};
}

Tensor Head::all_logits(const Tensor& x) const {
  const torch::NoGradGuard no_grad;  // all ranks have them: gradients would count more than once
  const Tensor own = project(x, weight_).t();
  const Tensor parts =
      gather_runs(at::constant_pad_nd(own, {0, 0, 0, vocabulary_.most - vocabulary_.own}),
                  vocabulary_.ranks, "logits");
  return parts.narrow(0, 0, vocabulary_.all).t();
}

Tensor Head::forward(const Tensor& x, const MicroBatch& batch) {
  Tensor y = norm_->forward(x);
  if (vocabulary_.ranks) {
    y = gather_runs(y, vocabulary_.ranks, "inputs of the head").narrow(0, 0, batch.tokens.numel());
  }
  if (!batch.targets.defined()) {
    if (!vocabulary_.ranks) return project(y, weight_);
    return all_logits(y).reshape({batch.tokens.size(0), batch.tokens.size(1), -1});
  }
  HeadLossOptions options;
  options.divisor = batch.loss_divisor;
  options.max_logits = max_logits_;
  options.trained_rows = batch.trained_rows;
  if (vocabulary_.ranks) options.shared = vocabulary_;
  // On the CPU memory is worth more than a quarter of these products.
  if (x.is_cuda()) {
    options.gradient = batch.grad_scale;
    options.entering = batch.loss_gradient;
  }
  return head_loss(y.flatten(0, -2), weight_, batch.targets.flatten(), options);
}

int64_t usual_chunk_rows(torch::DeviceType device, torch::Dtype dtype, int64_t vocab) {
  constexpr int64_t kTile = 256;
  constexpr int64_t kBytesOnGpu = int64_t{512} << 20;
  if (device == torch::kCPU) return std::max<int64_t>(1, (int64_t{16} << 20) / vocab);
  const int64_t rows = kBytesOnGpu / (vocab * static_cast<int64_t>(c10::elementSize(dtype)));
  return rows > kTile ? rows / kTile * kTile : std::max<int64_t>(1, rows);
}

Tensor head_loss(const Tensor& x, const Tensor& weight, const Tensor& targets,
                 const HeadLossOptions& options) {
  ZEROTH_CHECK(options.divisor > 0, "a loss divided by {}", options.divisor);
  const Tensor trained = options.trained_rows.defined()
                             ? options.trained_rows
                             : targets.ne(kUntrained).nonzero().squeeze(1);
  if (trained.size(0) == targets.size(0)) return of_all(x, weight, targets, options);
  return of_all(x.index_select(0, trained), weight, targets.index_select(0, trained), options);
}

}  // namespace zeroth::model
