#include "model/blocks/experts.h"

#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/stack.h>

#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/blocks/main_grad.h"
#include "model/custom_function.h"
#include "model/kernels/fused.h"
#include "model/kernels/matrix_product.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

constexpr double kGptOssSlope = 1.702;

// An Assignment lists the pairs of a token and one of its experts that this rank computes, sorted
// by expert. On the CPU an expert's rows are padded to a multiple of kGroupAlignment.
struct Assignment {
  Tensor pairs;    // [rows] int64: index of each among all pairs, token * k + place; of padding 0
  Tensor tokens;   // [rows] int64
  Tensor padding;  // [n] int64: the rows that are no pairs; undefined if there are none
  Tensor row_of;   // [tokens * k] int64: the row of each pair; 0 if another rank has the expert
  Tensor is_here;  // [tokens * k] bool: no other rank has the expert; undefined if all are here
  RowGroups groups;
};

// Returns the pairs of each group with -1 behind them as padding, and makes `counts` those of the
// padded groups.
Tensor pad_groups(const Tensor& pairs, std::vector<int64_t>& counts) {
  const int64_t* next = pairs.const_data_ptr<int64_t>();
  std::vector<int64_t> padded;
  for (int64_t& count : counts) {
    padded.insert(padded.end(), next, next + count);
    next += count;
    const int64_t more = -count & (kGroupAlignment - 1);
    padded.insert(padded.end(), static_cast<size_t>(more), -1);
    count += more;
  }
  return torch::tensor(padded, torch::kLong);
}

Assignment assign(const Tensor& experts, int64_t num_experts, int64_t first, int64_t count) {
  const Tensor flat = experts.flatten();
  const Tensor order = at::argsort(flat, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor counts = at::bincount(flat, {}, num_experts).to(torch::kCPU);
  const int64_t* const all = counts.const_data_ptr<int64_t>();
  std::vector<int64_t> own(all + first, all + first + count);
  const int64_t rows = std::accumulate(own.begin(), own.end(), int64_t{0});
  const Tensor pairs = order.narrow(0, std::accumulate(all, all + first, int64_t{0}), rows);
  Assignment result;
  result.pairs = pairs;
  Tensor places = at::arange(rows, flat.options());  // rows of `pairs`
  if (flat.is_cpu()) {
    const Tensor padded = pad_groups(pairs, own);
    places = padded.ge(0).nonzero().flatten();
    if (padded.numel() > rows) result.padding = padded.lt(0).nonzero().flatten();
    result.pairs = padded.clamp_min(0);
  }
  result.tokens = result.pairs.div(experts.size(1), "floor");
  result.row_of = at::zeros_like(flat).index_copy_(0, pairs, places);
  if (rows < flat.numel())
    result.is_here = at::zeros_like(flat, torch::kBool).index_fill_(0, pairs, 1);
  result.groups = make_row_groups(own, flat.device());
  return result;
}

// GatedHalves are gate and up [rows, size] of a product's outputs [rows, 2 * size].
struct GatedHalves {
  Tensor gate, up;
};

GatedHalves halves(const Tensor& both, bool interleaved) {
  if (interleaved) return {both.slice(1, 0, {}, 2), both.slice(1, 1, {}, 2)};
  const int64_t size = both.size(1) / 2;
  return {both.narrow(1, 0, size), both.narrow(1, size, size)};
}

// Returns gated_activation(), or gpt-oss's (up + 1) * gate * sigmoid(1.702 gate) of values that are
// clamped to the limit, gate from above alone.
Tensor activate(const Tensor& both, const ExpertsSpec& spec, bool gelu_tanh) {
  const GatedHalves in = halves(both, spec.interleaved);
  if (spec.limit == 0) return gated_activation(in.gate, in.up, gelu_tanh);
  const Tensor gate = in.gate.clamp_max(spec.limit), up = in.up.clamp(-spec.limit, spec.limit);
  return (up + 1) * (gate * (gate * kGptOssSlope).sigmoid());
}

// Returns the gradient of `both`.
Tensor activate_backward(const Tensor& dy, const Tensor& both, const ExpertsSpec& spec,
                         bool gelu_tanh) {
  const GatedHalves in = halves(both, spec.interleaved);
  if (spec.limit == 0) {
    const auto [dgate, dup] = gated_activation_backward(dy, in.gate, in.up, gelu_tanh);
    if (spec.interleaved) return at::stack({dgate, dup}, 2).flatten(1);
    const Tensor beside = concatenated_view({dgate, dup}, 1);
    return beside.defined() ? beside : at::cat({dgate, dup}, 1);
  }
  const Tensor out = at::empty_like(both);
  const GatedHalves gradient = halves(out, spec.interleaved);
  const Tensor gate = in.gate.clamp_max(spec.limit), up = in.up.clamp(-spec.limit, spec.limit);
  const Tensor sigmoid = (gate * kGptOssSlope).sigmoid();
  const Tensor slope = sigmoid * (1 + kGptOssSlope * gate * (1 - sigmoid));
  gradient.gate.copy_(dy * (up + 1) * slope * in.gate.le(spec.limit));
  gradient.up.copy_(dy * gate * sigmoid * in.up.abs().le(spec.limit));
  return out;
}

// Delivers the gradient a^T b of the matrices [experts, m, n], or returns it if no view is open.
Tensor deliver_matrices(const Tensor& matrices, const Tensor& a, const Tensor& b,
                        const RowGroups& groups) {
  if (defer_grad(matrices, [=] { deliver_matrices(matrices, a, b, groups); })) return {};
  const Tensor grad_view = main_grad(matrices);
  const Tensor out = grad_view.defined() ? grad_view : at::empty(matrices.sizes(), a.options());
  const bool add = grad_view.defined() && !is_unwritten(grad_view);
  write_grouped_wgrad(out, a, b, groups, add);
  return grad_view.defined() ? Tensor() : out.to(matrices.scalar_type());
}

Tensor deliver_biases(const Tensor& biases, const Tensor& dy, const RowGroups& groups) {
  const Tensor sums = at::zeros(biases.sizes(), dy.options().dtype(torch::kFloat));
  for (size_t group = 0; group < groups.ends.size(); ++group) {
    sums[static_cast<int64_t>(group)].copy_(
        dy.narrow(0, groups.begin(group), groups.rows(group)).sum({0}, false, torch::kFloat));
  }
  return accumulate_grad(biases, sums);
}

// ExpertsFunction returns each token's weighted sum of its experts' outputs. Inputs are x
// [tokens, hidden], the weights [tokens, k], and the parameters gate_up and down, then their biases
// if there are any. It keeps the outputs of gate_up, and computes the rest again.
class ExpertsFunction final : public CustomFunction {
 public:
  ExpertsFunction(const ExpertsSpec& spec, bool gelu_tanh, Assignment assignment)
      : spec_(spec), gelu_tanh_(gelu_tanh), assignment_(std::move(assignment)) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    num_inputs_ = inputs.size();
    const Tensor &x = inputs[0], &weights = inputs[1];
    Tensor rows = rows_of(x);
    if (spec_.router.scales_input) rows = rows * weights_of(weights);
    const Tensor both = grouped_product(rows, in_out(inputs[kGateUp]), assignment_.groups,
                                        spec_.bias ? inputs[kGateUpBias] : Tensor());
    rows = Tensor();
    const Tensor y = grouped_product(activate(both, spec_, gelu_tanh_), in_out(inputs[kDown]),
                                     assignment_.groups, spec_.bias ? inputs[kDownBias] : Tensor());
    TensorVector saved = inputs;
    saved.push_back(both);
    context.save_for_backward(std::move(saved));
    return {sum_by_token(y, weights, /*weighted=*/!spec_.router.scales_input)};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const Tensor &x = saved[0], &weights = saved[1], &both = saved[num_inputs_];
    const Tensor row_weights = weights_of(weights);
    const bool scales_input = spec_.router.scales_input;
    TensorVector gradients(num_inputs_);
    Tensor dy = rows_of(grads[0]);  // of each expert's output, not weighted yet
    Tensor dactive = grouped_product(dy, out_in(saved[kDown]), assignment_.groups);
    const Tensor active = activate(both, spec_, gelu_tanh_);
    Tensor dweights;
    if (!scales_input) {
      dweights = (dactive * active).sum(-1, false, torch::kFloat);
      if (spec_.bias) add_bias_products(dweights, dy, saved[kDownBias]);
      dactive = dactive.mul_(row_weights);
      dy = dy.mul_(row_weights);
    }
    if (context.needs_input_grad(kDown))
      gradients[kDown] = wgrad(saved[kDown], /*dy=*/dy, /*x=*/active);
    if (spec_.bias && context.needs_input_grad(kDownBias))
      gradients[kDownBias] = deliver_biases(saved[kDownBias], dy, assignment_.groups);
    dy = Tensor();
    const Tensor dboth = activate_backward(dactive, both, spec_, gelu_tanh_);
    dactive = Tensor();
    const Tensor rows = rows_of(x);
    if (context.needs_input_grad(kGateUp)) {
      gradients[kGateUp] = wgrad(saved[kGateUp], dboth, scales_input ? rows * row_weights : rows);
    }
    if (spec_.bias && context.needs_input_grad(kGateUpBias))
      gradients[kGateUpBias] = deliver_biases(saved[kGateUpBias], dboth, assignment_.groups);
    Tensor dx = grouped_product(dboth, out_in(saved[kGateUp]), assignment_.groups);
    if (scales_input) {
      dweights = (dx * rows).sum(-1, false, torch::kFloat);
      dx = dx.mul_(row_weights);
    }
    gradients[0] = sum_by_token(dx, weights, /*weighted=*/false);
    gradients[1] = by_pair(dweights, weights);
    return gradients;
  }

 private:
  enum Input : size_t { kGateUp = 2, kDown, kGateUpBias, kDownBias };

  // Returns the rows' tokens, zeros for padding, which so adds nothing to any sum.
  Tensor rows_of(const Tensor& x) const {
    const Tensor rows = x.index_select(0, assignment_.tokens);
    return assignment_.padding.defined() ? rows.index_fill_(0, assignment_.padding, 0) : rows;
  }
  // Returns [rows, 1].
  Tensor weights_of(const Tensor& weights) const {
    return weights.flatten().index_select(0, assignment_.pairs).unsqueeze(1);
  }
  // Returns the sums [tokens, width] of the rows [rows, width] of each token, of which other ranks
  // have some, times their weights [tokens, k].
  Tensor sum_by_token(const Tensor& rows, const Tensor& weights, bool weighted) const {
    const int64_t tokens = weights.size(0), k = weights.size(1);
    if (rows.size(0) == 0) return at::zeros({tokens, rows.size(1)}, rows.options());
    std::optional<Tensor> factors;
    if (weighted) factors = weights.flatten();
    if (assignment_.is_here.defined()) {
      const Tensor is_here = assignment_.is_here.to(rows.scalar_type());
      factors = factors ? *factors * is_here : is_here;
    }
    const Tensor firsts = at::arange(0, tokens * k, k, assignment_.row_of.options());
    constexpr int64_t kSum = 0;
    return std::get<0>(at::embedding_bag(rows, assignment_.row_of, firsts,
                                         /*scale_grad_by_freq=*/false, kSum, /*sparse=*/false,
                                         factors));
  }
  // Returns the values [rows] of all pairs, zeros where other ranks have the expert, in the shape
  // and dtype of the weights.
  Tensor by_pair(const Tensor& values, const Tensor& weights) const {
    if (values.size(0) == 0) return at::zeros_like(weights);
    Tensor all = values.index_select(0, assignment_.row_of);
    if (assignment_.is_here.defined()) all = all * assignment_.is_here;
    return all.view(weights.sizes()).to(weights.scalar_type());
  }
  Tensor in_out(const Tensor& matrices) const {
    return spec_.in_out ? matrices : matrices.transpose(1, 2);
  }
  Tensor out_in(const Tensor& matrices) const {
    return spec_.in_out ? matrices.transpose(1, 2) : matrices;
  }
  Tensor wgrad(const Tensor& matrices, const Tensor& dy, const Tensor& x) const {
    return spec_.in_out ? deliver_matrices(matrices, x, dy, assignment_.groups)
                        : deliver_matrices(matrices, dy, x, assignment_.groups);
  }
  void add_bias_products(const Tensor& dweights, const Tensor& dy, const Tensor& bias) const {
    for (size_t group = 0; group < assignment_.groups.ends.size(); ++group) {
      const int64_t begin = assignment_.groups.begin(group), rows = assignment_.groups.rows(group);
      const Tensor own = dy.narrow(0, begin, rows) * bias[static_cast<int64_t>(group)];
      dweights.narrow(0, begin, rows).add_(own.sum(-1, false, torch::kFloat));
    }
  }

  ExpertsSpec spec_;
  bool gelu_tanh_;
  Assignment assignment_;
  size_t num_inputs_ = 0;
};

}  // namespace

Experts::Experts(const ModelSpec& spec, const std::string& block, TensorParallelPtr tp)
    : spec_(*spec.experts),
      activation_(spec.activation),
      tp_(std::move(tp)),
      first_(tp_ ? tp_->rank() * (spec_.num_experts / tp_->size()) : 0),
      count_(spec_.num_experts / tp_size(tp_)) {
  ZEROTH_CHECK(spec_.limit > 0 || is_fused(activation_), "experts need SiLU or GELU by tanh");
  router_ = register_module("router", std::make_shared<Router>(spec, block, tp_));
  const auto matrices = register_module("experts", std::make_shared<torch::nn::Module>());
  const int64_t hidden = spec.hidden_size, size = spec_.intermediate_size;
  const auto add = [&](const char* name, int64_t in, int64_t out) {
    return matrices->register_parameter(
        name, spec_.in_out ? meta_parameter({count_, in, out}) : meta_parameter({count_, out, in}));
  };
  gate_up_ = add("gate_up", hidden, 2 * size);
  down_ = add("down", size, hidden);
  if (spec_.bias) {
    gate_up_bias_ =
        matrices->register_parameter("gate_up_bias", meta_parameter({count_, 2 * size}));
    down_bias_ = matrices->register_parameter("down_bias", meta_parameter({count_, hidden}));
  }
  if (spec_.shared_intermediate_size == 0) return;
  shared_ =
      register_module("shared", std::make_shared<Mlp>(spec, spec_.shared_intermediate_size, tp_));
  if (spec_.shared_gate) {
    shared_gate_ = register_module(
        "shared_gate", std::make_shared<Linear>(LinearShape{.in = hidden, .out = 1, .tp = tp_}));
  }
}

std::vector<std::string> Experts::keep_in_fp32(const std::string& prefix) const {
  if (!spec_.router.correction_bias) return {};
  return {prefix + "router.correction_bias"};
}

Splits Experts::splits(const std::string& prefix) const {
  Splits splits;
  if (!tp_) return splits;
  const auto add = [&](const char* name, const Tensor& parameter) {
    if (!parameter.defined()) return;
    Split split{prefix + name, parameter.sizes().vec(), {}, /*num_replicas=*/1};
    split.begin.assign(split.shape.size(), 0);
    split.begin[0] = first_;
    split.shape[0] = spec_.num_experts;
    splits[prefix + name] = std::move(split);
  };
  add("experts.gate_up", gate_up_);
  add("experts.down", down_);
  add("experts.gate_up_bias", gate_up_bias_);
  add("experts.down_bias", down_bias_);
  return splits;
}

Tensor Experts::run_experts(const Tensor& x, const Router::Choice& choice) const {
  TensorVector inputs = {x, choice.weights, gate_up_, down_};
  if (spec_.bias) inputs.insert(inputs.end(), {gate_up_bias_, down_bias_});
  return apply_function(
      std::make_shared<ExpertsFunction>(spec_, activation_ == Activation::kGeluTanh,
                                        assign(choice.experts, spec_.num_experts, first_, count_)),
      inputs)[0];
}

Tensor Experts::forward(const Tensor& any_x, const Tensor& routed, const MicroBatch& batch) const {
  const Tensor x = any_x.reshape({-1, any_x.size(-1)});
  Router::Choice choice = router_->forward(routed.reshape(x.sizes()), batch);
  Tensor y;
  if (tp_) {
    // Each rank has some of every token's experts.
    choice.experts = tp_->all_gather(choice.experts, "choices of experts");
    choice.weights = gather_sequence(choice.weights, tp_, "weights of experts");
    const Tensor all = gather_sequence(x, tp_, "inputs of experts");
    y = reduce_scatter_sequence(run_experts(all, choice), tp_, "outputs of experts");
  } else {
    y = run_experts(x, choice);
  }
  if (shared_) {
    Tensor shared = shared_->forward(x, batch);
    if (shared_gate_) shared = shared * linear(x, *shared_gate_, batch).sigmoid();
    y = y + shared;
  }
  return y.view(any_x.sizes());
}

}  // namespace zeroth::model
