#include "model/blocks/head.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/blocks/linear.h"
#include "model/blocks/main_grad.h"
#include "model/custom_function.h"
#include "model/kernels/fused.h"
#include "model/kernels/matrix_product.h"
#include "model/micro_batch.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// RowSums holds, for the rows of a chunk, [rows] fp32: log(sum(exp)) of their logits, and the
// logits at the targets.
struct RowSums {
  Tensor lse, target_logits;
  // Returns the sum of negative log-likelihoods, fp64.
  Tensor loss() const { return lse.sub(target_logits).sum(torch::kDouble); }
};

// Returns the sums over the whole vocabulary. If ranks split it, each one sums its own part, and
// one of them has the target; the call is then collective.
RowSums row_sums(const Tensor& logits, const Tensor& targets,
                 const std::optional<VocabShard>& vocab_shard) {
  if (!vocab_shard) {
    return {log_sum_exp(logits), logits.gather(1, targets.unsqueeze(1)).squeeze(1)};
  }
  const auto [rows, is_local] = vocab_shard->local_rows(targets);
  const Tensor local = log_sum_exp(logits);
  const Tensor max_lse = local.clone();
  vocab_shard->tp->all_reduce(max_lse, comm::ReduceOp::kMax, "largest logits");
  const Tensor target_logits = logits.gather(1, rows.unsqueeze(1)).squeeze(1).to(torch::kFloat);
  const Tensor sums = at::stack({local.sub(max_lse).exp_(), target_logits.mul(is_local)});
  vocab_shard->tp->all_reduce(sums, comm::ReduceOp::kSum, "sums of logits");
  return {sums[0].log().add_(max_lse), sums[1]};
}

// Returns the targets as indices into this rank's logits.
Tensor local_targets(const Tensor& targets, const std::optional<VocabShard>& vocab_shard) {
  return vocab_shard ? targets - vocab_shard->begin : targets;
}

// Returns the rows of a chunk, equal on all ranks that split the vocabulary.
int64_t chunk_rows(const Tensor& x, const Tensor& weight, const HeadLossOptions& options) {
  const int64_t vocab = options.vocab_shard ? options.vocab_shard->max_local_size : weight.size(0);
  if (options.max_logits > 0) return std::max<int64_t>(1, options.max_logits / vocab);
  return default_chunk_rows(x.device().type(), x.scalar_type(), vocab);
}

// Returns [rows, vocab] from x [rows, hidden] and weight [vocab, hidden]. On a GPU rows begin at
// multiples of 64 elements, whatever the vocabulary: products and kernels are slow on others.
Tensor compute_logits(const Tensor& x, const Tensor& weight) {
  if (x.is_cpu()) return matrix_product(x, weight.t());
  constexpr int64_t kRowAlignment = 64;
  const int64_t vocab = weight.size(0);
  const int64_t padded = (vocab + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  const Tensor logits = at::empty({x.size(0), padded}, x.options()).narrow(1, 0, vocab);
  write_matrix_product(logits, x, weight.t());
  return logits;
}

struct HeadOutputMask {
  bool dx = false;
  bool dweight = false;
};

// HeadGradients accumulates the gradients of several chunks, each computed while its logits are in
// memory.
struct HeadGradients {
  Tensor dx, dweight;
  bool empty = true;

  HeadGradients(const Tensor& x, const Tensor& weight, const HeadOutputMask& output_mask) {
    if (output_mask.dx) dx = at::empty_like(x);
    if (!output_mask.dweight) return;
    const Tensor wide = at::empty({0}, weight.options().dtype(torch::kFloat));
    const bool is_wide = accumulates_in_fp32(wide, x);
    dweight = at::empty(weight.sizes(), is_wide ? wide.options() : weight.options());
  }

  void add(const Tensor& dlogits, const Tensor& x, const Tensor& weight, int64_t begin) {
    if (dx.defined()) write_matrix_product(dx.narrow(0, begin, x.size(0)), dlogits, weight);
    if (!dweight.defined()) return;
    write_matrix_product(dweight, dlogits.t(), x, /*add=*/!empty);
    empty = false;
  }
};

// HeadLoss returns the loss of rows that all have a label. Inputs are x, weight and targets.
class HeadLoss final : public CustomFunction {
 public:
  HeadLoss(const HeadLossOptions& options, const HeadOutputMask& output_mask)
      : options_(options), output_mask_(output_mask) {
    options_.label_indices = Tensor();  // the rows are chosen
  }

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    const Tensor &x = inputs[0], &weight = inputs[1], &targets = inputs[2];
    chunk_ = chunk_rows(x, weight, options_);
    in_forward_ =
        (output_mask_.dx || output_mask_.dweight) && options_.gradient != 0 && x.size(0) > chunk_;
    HeadGradients gradients(x, weight, in_forward_ ? output_mask_ : HeadOutputMask());
    const Tensor scale =
        torch::full({}, options_.gradient / options_.divisor, x.options().dtype(torch::kFloat));
    Tensor sum = torch::zeros({}, x.options().dtype(torch::kDouble));
    Tensor saved_logits;
    Tensor lse = at::empty({x.size(0)}, x.options().dtype(torch::kFloat));
    for (int64_t begin = 0; begin < x.size(0); begin += chunk_) {
      const int64_t rows = std::min(chunk_, x.size(0) - begin);
      const Tensor part = x.narrow(0, begin, rows), row_targets = targets.narrow(0, begin, rows);
      const Tensor logits = compute_logits(part, weight);
      const RowSums sums = row_sums(logits, row_targets, options_.vocab_shard);
      lse.narrow(0, begin, rows).copy_(sums.lse);
      sum += sums.loss();
      if (rows == x.size(0)) saved_logits = logits;
      if (!in_forward_) continue;
      logit_gradient_(logits, sums.lse, local_targets(row_targets, options_.vocab_shard), scale);
      gradients.add(logits, part, weight, begin);
    }
    context.save_for_backward({x, weight, local_targets(targets, options_.vocab_shard), lse,
                               saved_logits, gradients.dx, gradients.dweight,
                               options_.grad_output});
    return {(sum / options_.divisor).to(torch::kFloat)};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    return in_forward_ ? deliver_saved(saved, grads[0])
                       : recompute_gradients(context, saved, grads[0]);
  }

 private:
  // Delivers gradients that were computed for the expected gradient, scaled if `dy` is another one.
  TensorVector deliver_saved(const TensorVector& saved, const Tensor& dy) const {
    Tensor dx = saved[5], dweight = saved[6];
    const Tensor& expected_grad = saved[7];
    if (!expected_grad.defined() || expected_grad.const_data_ptr() != dy.const_data_ptr()) {
      const Tensor factor = dy / options_.gradient;
      if (dx.defined()) dx.mul_(factor);
      if (dweight.defined()) dweight.mul_(factor);
    }
    if (dweight.defined()) dweight = accumulate_grad(saved[1], dweight);
    return {dx, dweight, Tensor()};
  }

  TensorVector recompute_gradients(const FunctionContext& context, const TensorVector& saved,
                                   const Tensor& dy) const {
    const Tensor &x = saved[0], &weight = saved[1], &targets = saved[2], &saved_logits = saved[4];
    const Tensor scale = dy / options_.divisor;
    const Tensor dx = context.needs_input_grad(0) ? at::empty_like(x) : Tensor();
    Tensor dweight;
    for (int64_t begin = 0; begin < x.size(0); begin += chunk_) {
      const int64_t rows = std::min(chunk_, x.size(0) - begin);
      const Tensor part = x.narrow(0, begin, rows);
      const Tensor logits = saved_logits.defined() ? saved_logits : compute_logits(part, weight);
      logit_gradient_(logits, saved[3].narrow(0, begin, rows), targets.narrow(0, begin, rows),
                      scale);
      if (dx.defined()) write_matrix_product(dx.narrow(0, begin, rows), logits, weight);
      if (!context.needs_input_grad(1)) continue;
      const Tensor more = accumulate_wgrad(weight, logits, part);
      if (more.defined()) dweight = dweight.defined() ? dweight.add_(more) : more;
    }
    // The loss depends on the weight even if there are no label tokens: its gradient is then zero,
    // not absent.
    if (x.size(0) == 0 && context.needs_input_grad(1)) {
      dweight = accumulate_grad(weight, at::zeros({1, 1}, weight.options()).expand_as(weight));
    }
    return {dx, dweight, Tensor()};
  }

  HeadLossOptions options_;
  HeadOutputMask output_mask_;
  int64_t chunk_ = 0;  // rows
  bool in_forward_ = false;
};

}  // namespace

Head::Head(const ModelSpec& spec, const Tensor& tied_weight, int64_t max_logits,
           TensorParallelPtr tp)
    : Block("head"), vocab_shard_(spec.vocab_size, std::move(tp)), max_logits_(max_logits) {
  norm_ =
      register_module("norm", std::make_shared<Norm>(spec.norm, spec.hidden_size, spec.norm_eps));
  weight_ = register_parameter("weight",
                               tied_weight.defined()
                                   ? tied_weight
                                   : meta_parameter({vocab_shard_.local_size, spec.hidden_size}));
}

Tensor Head::gather_logits(const Tensor& x) const {
  // Every rank has all logits: gradients would count more than once.
  const torch::NoGradGuard no_grad;
  const Tensor local = project(x, weight_).t();
  const Tensor parts = gather_sequence(
      at::constant_pad_nd(local, {0, 0, 0, vocab_shard_.max_local_size - vocab_shard_.local_size}),
      vocab_shard_.tp, "logits");
  return parts.narrow(0, 0, vocab_shard_.full_size).t();
}

Tensor Head::forward(const Tensor& x, const MicroBatch& batch) {
  Tensor y = norm_->forward(x);
  if (vocab_shard_.tp) {
    y = gather_sequence(y, vocab_shard_.tp, "inputs of the head")
            .narrow(0, 0, batch.tokens.numel());
  }
  if (!batch.targets.defined()) {
    if (!vocab_shard_.tp) return project(y, weight_);
    return gather_logits(y).reshape({batch.tokens.size(0), batch.tokens.size(1), -1});
  }
  HeadLossOptions options;
  options.divisor = batch.loss_normalizer;
  options.max_logits = max_logits_;
  options.label_indices = batch.label_indices;
  if (vocab_shard_.tp) options.vocab_shard = vocab_shard_;
  // On the CPU, memory matters more than a quarter of these products.
  if (x.is_cuda()) {
    options.gradient = batch.grad_scale;
    options.grad_output = batch.loss_gradient;
  }
  return head_loss(y.flatten(0, -2), weight_, batch.targets.flatten(), options);
}

int64_t default_chunk_rows(torch::DeviceType device, torch::Dtype dtype, int64_t vocab) {
  constexpr int64_t kTile = 256;
  constexpr int64_t kBytesOnGpu = int64_t{512} << 20;
  if (device == torch::kCPU) return std::max<int64_t>(1, (int64_t{16} << 20) / vocab);
  const int64_t rows = kBytesOnGpu / (vocab * static_cast<int64_t>(c10::elementSize(dtype)));
  return rows > kTile ? rows / kTile * kTile : std::max<int64_t>(1, rows);
}

Tensor head_loss(const Tensor& x, const Tensor& weight, const Tensor& targets,
                 const HeadLossOptions& options) {
  ZEROTH_CHECK(options.divisor > 0, "a loss divided by {}", options.divisor);
  const Tensor labels = options.label_indices.defined()
                            ? options.label_indices
                            : targets.ne(kIgnoreIndex).nonzero().squeeze(1);
  const bool all = labels.size(0) == targets.size(0);
  const Tensor rows = all ? x : x.index_select(0, labels);
  const Tensor row_targets = all ? targets : targets.index_select(0, labels);
  const bool records = torch::GradMode::is_enabled();
  const HeadOutputMask output_mask{.dx = records && rows.requires_grad(),
                                   .dweight = records && weight.requires_grad()};
  return apply_function(std::make_shared<HeadLoss>(options, output_mask),
                        {rows, weight, row_targets})[0];
}

}  // namespace zeroth::model
