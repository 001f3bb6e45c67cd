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
int64_t chunk_rows(const HeadTerm& first, const HeadLossOptions& options) {
  const int64_t vocab =
      options.vocab_shard ? options.vocab_shard->max_local_size : first.weight.size(0);
  if (options.max_logits > 0) return std::max<int64_t>(1, options.max_logits / vocab);
  return default_chunk_rows(first.x.device().type(), first.x.scalar_type(), vocab);
}

// Returns the terms of the rows [begin, begin + rows).
std::vector<HeadTerm> narrow_rows(std::vector<HeadTerm> terms, int64_t begin, int64_t rows) {
  for (HeadTerm& term : terms) term.x = term.x.narrow(0, begin, rows);
  return terms;
}

// A logit z becomes softcap * tanh(z / softcap), unless that is 0.
void cap_(Tensor& logits, double softcap) {
  if (softcap > 0) logits.div_(softcap).tanh_().mul_(softcap);
}

// Turns capped logits into the gradient of those before the cap; see logit_gradient_().
void loss_gradient_(Tensor logits, double softcap, const Tensor& lse, const Tensor& targets,
                    const Tensor& scale) {
  const Tensor slope = softcap > 0 ? 1 - logits.div(softcap).square_() : Tensor();
  logit_gradient_(logits, lse, targets, scale);
  if (softcap > 0) logits.mul_(slope);
}

// Returns capped logits [rows, vocab]. On a GPU rows begin at multiples of 64 elements, whatever
// the vocabulary: products and kernels are slow on others.
Tensor compute_logits(const std::vector<HeadTerm>& terms, double softcap) {
  const auto& [x, weight] = terms.front();
  Tensor logits;
  if (x.is_cpu()) {
    logits = matrix_product(x, weight.t());
  } else {
    constexpr int64_t kRowAlignment = 64;
    const int64_t vocab = weight.size(0);
    const int64_t padded = (vocab + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
    logits = at::empty({x.size(0), padded}, x.options()).narrow(1, 0, vocab);
    write_matrix_product(logits, x, weight.t());
  }
  for (size_t i = 1; i < terms.size(); ++i) {
    if (terms[i].is_bias()) {
      logits.add_(terms[i].weight);
    } else {
      write_matrix_product(logits, terms[i].x, terms[i].weight.t(), /*add=*/true);
    }
  }
  cap_(logits, softcap);
  return logits;
}

// HeadGradients accumulates the gradients of a term over several chunks, each computed while its
// logits are in memory.
struct HeadGradients {
  Tensor dx, dweight;
  bool empty = true;

  explicit HeadGradients(const HeadTerm& term) {
    const auto& [x, weight] = term;
    if (x.requires_grad()) dx = at::empty_like(x);
    if (!weight.requires_grad()) return;
    const Tensor wide = at::empty({0}, weight.options().dtype(torch::kFloat));
    const bool is_wide = accumulates_in_fp32(wide, x);
    dweight = at::empty(weight.sizes(), is_wide ? wide.options() : weight.options());
  }

  void add(const Tensor& dlogits, const HeadTerm& part, int64_t begin) {
    const auto& [x, weight] = part;
    if (dx.defined()) write_matrix_product(dx.narrow(0, begin, x.size(0)), dlogits, weight);
    if (!dweight.defined()) return;
    if (part.is_bias()) {
      const Tensor sum = dlogits.sum({0}, false, torch::kFloat);
      empty ? dweight.copy_(sum) : dweight.add_(sum);
    } else {
      write_matrix_product(dweight, dlogits.t(), x, /*add=*/!empty);
    }
    empty = false;
  }
};

// HeadLoss returns the loss of rows that all have a label. Inputs are x, weight, x, weight, ... of
// the terms, then targets.
class HeadLoss final : public CustomFunction {
 public:
  HeadLoss(const HeadLossOptions& options, bool records) : options_(options), records_(records) {
    options_.label_indices = Tensor();  // the rows are chosen
  }

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    const std::vector<HeadTerm> terms = terms_of(inputs);
    const Tensor& targets = inputs.back();
    const int64_t num_rows = targets.size(0);
    chunk_ = chunk_rows(terms.front(), options_);
    in_forward_ = records_ && options_.gradient != 0 && num_rows > chunk_;
    std::vector<HeadGradients> gradients;
    for (size_t i = 0; in_forward_ && i < terms.size(); ++i) gradients.emplace_back(terms[i]);
    const auto in_fp32 = inputs[0].options().dtype(torch::kFloat);
    const Tensor scale = torch::full({}, options_.gradient / options_.divisor, in_fp32);
    Tensor sum = torch::zeros({}, in_fp32.dtype(torch::kDouble));
    Tensor saved_logits;
    Tensor lse = at::empty({num_rows}, in_fp32);
    for (int64_t begin = 0; begin < num_rows; begin += chunk_) {
      const int64_t rows = std::min(chunk_, num_rows - begin);
      const std::vector<HeadTerm> parts = narrow_rows(terms, begin, rows);
      const Tensor row_targets = targets.narrow(0, begin, rows);
      const Tensor logits = compute_logits(parts, options_.softcap);
      const RowSums sums = row_sums(logits, row_targets, options_.vocab_shard);
      lse.narrow(0, begin, rows).copy_(sums.lse);
      sum += sums.loss();
      if (rows == num_rows) saved_logits = logits;
      if (!in_forward_) continue;
      loss_gradient_(logits, options_.softcap, sums.lse,
                     local_targets(row_targets, options_.vocab_shard), scale);
      for (size_t i = 0; i < parts.size(); ++i) gradients[i].add(logits, parts[i], begin);
    }
    TensorVector saved(inputs.begin(), inputs.end() - 1);
    saved.insert(saved.end(), {local_targets(targets, options_.vocab_shard), lse, saved_logits,
                               options_.grad_output});
    for (const HeadGradients& own : gradients) saved.insert(saved.end(), {own.dx, own.dweight});
    context.save_for_backward(std::move(saved));
    return {(sum / options_.divisor).to(torch::kFloat)};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    TensorVector gradients = in_forward_ ? deliver_saved(saved, grads[0])
                                         : recompute_gradients(context, saved, grads[0]);
    gradients.emplace_back();  // of targets
    return gradients;
  }

 private:
  static std::vector<HeadTerm> terms_of(const TensorVector& tensors) {
    std::vector<HeadTerm> terms;
    for (size_t i = 0; i + 1 < tensors.size(); i += 2)
      terms.push_back({tensors[i], tensors[i + 1]});
    return terms;
  }

  // Delivers gradients that were computed for the expected gradient, scaled if `dy` is another one.
  TensorVector deliver_saved(const TensorVector& saved, const Tensor& dy) const {
    const size_t num_inputs = (saved.size() - kNumOthers) / 2;
    TensorVector gradients(saved.end() - static_cast<ptrdiff_t>(num_inputs), saved.end());
    const Tensor& expected_grad = saved[num_inputs + 3];
    const bool scales =
        !expected_grad.defined() || expected_grad.const_data_ptr() != dy.const_data_ptr();
    const Tensor factor = scales ? dy / options_.gradient : Tensor();
    for (size_t i = 0; i < num_inputs; ++i) {
      if (!gradients[i].defined()) continue;
      if (scales) gradients[i].mul_(factor);
      const bool is_weight = i % 2 == 1;
      if (is_weight) gradients[i] = accumulate_grad(saved[i], gradients[i]);
    }
    return gradients;
  }

  TensorVector recompute_gradients(const FunctionContext& context, const TensorVector& saved,
                                   const Tensor& dy) const {
    const size_t num_inputs = saved.size() - kNumOthers;
    const std::vector<HeadTerm> terms =
        terms_of({saved.begin(), saved.begin() + static_cast<ptrdiff_t>(num_inputs)});
    const Tensor *const others = &saved[num_inputs], &targets = others[0],
                        &saved_logits = others[2];
    const int64_t num_rows = targets.size(0);
    const Tensor scale = dy / options_.divisor;
    TensorVector gradients(num_inputs);
    for (size_t i = 0; i < num_inputs; i += 2) {
      if (context.needs_input_grad(i)) gradients[i] = at::empty_like(saved[i]);
    }
    for (int64_t begin = 0; begin < num_rows; begin += chunk_) {
      const int64_t rows = std::min(chunk_, num_rows - begin);
      const std::vector<HeadTerm> parts = narrow_rows(terms, begin, rows);
      const Tensor logits =
          saved_logits.defined() ? saved_logits : compute_logits(parts, options_.softcap);
      loss_gradient_(logits, options_.softcap, others[1].narrow(0, begin, rows),
                     targets.narrow(0, begin, rows), scale);
      for (size_t i = 0; i < parts.size(); ++i) {
        const auto& [x, weight] = parts[i];
        const Tensor& dx = gradients[2 * i];
        Tensor& dweight = gradients[2 * i + 1];
        if (dx.defined()) write_matrix_product(dx.narrow(0, begin, rows), logits, weight);
        if (!context.needs_input_grad(2 * i + 1)) continue;
        const Tensor more = parts[i].is_bias()
                                ? accumulate_grad(weight, logits.sum({0}, false, torch::kFloat))
                                : accumulate_wgrad(weight, logits, x);
        if (more.defined()) dweight = dweight.defined() ? dweight.add_(more) : more;
      }
    }
    // The loss depends on the weights even if there are no label tokens: their gradients are then
    // zero, not absent.
    for (size_t i = 1; num_rows == 0 && i < num_inputs; i += 2) {
      if (!context.needs_input_grad(i)) continue;
      const Tensor& weight = saved[i];
      gradients[i] = accumulate_grad(weight, at::zeros({}, weight.options()).expand_as(weight));
    }
    return gradients;
  }

  // What is saved behind the terms: targets, lse, logits and the gradient that is expected.
  static constexpr size_t kNumOthers = 4;

  HeadLossOptions options_;
  bool records_;
  int64_t chunk_ = 0;  // rows
  bool in_forward_ = false;
};

}  // namespace

Head::Head(const ModelSpec& spec, const Tensor& tied_weight, int64_t max_logits,
           TensorParallelPtr tp)
    : Block("head"),
      vocab_shard_(spec.vocab_size, std::move(tp)),
      max_logits_(max_logits),
      multiplier_(spec.logits_multiplier),
      softcap_(spec.logits_softcap) {
  norm_ = register_module("norm", std::make_shared<Norm>(spec.norm, spec.hidden_size));
  weight_ = register_parameter("weight",
                               tied_weight.defined()
                                   ? tied_weight
                                   : meta_parameter({vocab_shard_.local_size, spec.hidden_size}));
  if (spec.head_bias) bias_ = register_parameter("bias", meta_parameter({vocab_shard_.local_size}));
}

void Head::add_adapter(int64_t r, double scale, const DropoutSite& dropout) {
  const Tensor a = register_parameter("lora_A", meta_parameter({r, weight_.size(1)}));
  const Tensor b = register_parameter("lora_B", meta_parameter({weight_.size(0), r}));
  adapter_ = LoraAdapter{{a, b}, scale, dropout};
}

std::optional<Splits> Head::splits() const {
  std::optional<Splits> splits = vocab_shard_.splits("weight", weight_, /*dim=*/0);
  if (splits && bias_.defined()) splits->merge(*vocab_shard_.splits("bias", bias_, 0));
  if (splits && adapter_) splits->merge(*vocab_shard_.splits("lora_B", adapter_->factors.b, 0));
  return splits;
}

std::vector<HeadTerm> Head::terms(const Tensor& x, const MicroBatch& batch) const {
  std::vector<HeadTerm> terms = {{x, weight_}};
  if (bias_.defined()) {
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = 1;
    terms.push_back({at::ones(sizes, x.options()), bias_});
  }
  if (!adapter_) return terms;
  const auto& [factors, scale, site] = *adapter_;
  terms.push_back({project(dropout(x, site, batch), factors.a).mul(scale), factors.b});
  return terms;
}

Tensor Head::logits(const std::vector<HeadTerm>& terms) const {
  Tensor sum;
  for (const HeadTerm& term : terms) {
    const Tensor y = term.is_bias() ? deliver_grad(term.weight) : project(term.x, term.weight);
    sum = sum.defined() ? sum + y : y;
  }
  return softcap_ > 0 ? sum.div(softcap_).tanh().mul(softcap_) : sum;
}

Tensor Head::gather_logits(const std::vector<HeadTerm>& terms) const {
  // Every rank has all logits: gradients would count more than once.
  const torch::NoGradGuard no_grad;
  const Tensor local = logits(terms).t();
  const Tensor parts = gather_sequence(
      at::constant_pad_nd(local, {0, 0, 0, vocab_shard_.max_local_size - vocab_shard_.local_size}),
      vocab_shard_.tp, "logits");
  return parts.narrow(0, 0, vocab_shard_.full_size).t();
}

Tensor Head::forward(const Tensor& x, const MicroBatch& batch) {
  Tensor y = norm_->forward(x);
  if (multiplier_ != 1) y = y * multiplier_;
  if (vocab_shard_.tp) {
    y = gather_sequence(y, vocab_shard_.tp, "inputs of the head")
            .narrow(0, 0, batch.tokens.numel());
  }
  std::vector<HeadTerm> all = terms(y, batch);
  if (!batch.targets.defined()) {
    if (!vocab_shard_.tp) return logits(all);
    return gather_logits(all).reshape({batch.tokens.size(0), batch.tokens.size(1), -1});
  }
  HeadLossOptions options;
  options.divisor = batch.loss_normalizer;
  options.max_logits = max_logits_;
  options.label_indices = batch.label_indices;
  options.softcap = softcap_;
  if (vocab_shard_.tp) options.vocab_shard = vocab_shard_;
  // On the CPU, memory matters more than a quarter of these products.
  if (x.is_cuda()) {
    options.gradient = batch.grad_scale;
    options.grad_output = batch.loss_gradient;
  }
  for (HeadTerm& term : all) term.x = term.x.flatten(0, -2);
  return head_loss(all, batch.targets.flatten(), options);
}

int64_t default_chunk_rows(torch::DeviceType device, torch::Dtype dtype, int64_t vocab) {
  constexpr int64_t kTile = 256;
  constexpr int64_t kBytesOnGpu = int64_t{512} << 20;
  if (device == torch::kCPU) return std::max<int64_t>(1, (int64_t{16} << 20) / vocab);
  const int64_t rows = kBytesOnGpu / (vocab * static_cast<int64_t>(c10::elementSize(dtype)));
  return rows > kTile ? rows / kTile * kTile : std::max<int64_t>(1, rows);
}

Tensor head_loss(const std::vector<HeadTerm>& terms, const Tensor& targets,
                 const HeadLossOptions& options) {
  ZEROTH_CHECK(options.divisor > 0, "a loss divided by {}", options.divisor);
  const Tensor labels = options.label_indices.defined()
                            ? options.label_indices
                            : targets.ne(kIgnoreIndex).nonzero().squeeze(1);
  const bool all = labels.size(0) == targets.size(0);
  TensorVector inputs;
  bool records = false;
  for (const auto& [x, weight] : terms) {
    inputs.insert(inputs.end(), {all ? x : x.index_select(0, labels), weight});
    records = records || x.requires_grad() || weight.requires_grad();
  }
  inputs.push_back(all ? targets : targets.index_select(0, labels));
  records = records && torch::GradMode::is_enabled();
  return apply_function(std::make_shared<HeadLoss>(options, records), inputs)[0];
}

}  // namespace zeroth::model
