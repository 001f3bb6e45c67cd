#include "model/kernels/attention_kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/softmax.h>

#include <utility>

#include "model/custom_function.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// Probabilities are those of keys and sinks, and the slope of the cap, which backward needs.
struct Probabilities {
  Tensor keys;   // [heads, seq, seq] fp32
  Tensor sinks;  // [heads, seq] fp32, or undefined
  Tensor slope;  // [heads, seq, seq], or undefined
};

// An AttentionRow is one row of the batch. The queries of the heads that share keys are stacked, so
// that no key is copied: q [kv_heads, group * seq, head_dim], k [kv_heads, seq, head_dim], v
// [kv_heads, seq, v_dim].
class AttentionRow {
 public:
  AttentionRow(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sinks,
               const FormulaAttentionOptions& options)
      : seq_(q.size(0)),
        heads_(q.size(1)),
        options_(options),
        sinks_(sinks),
        q_(grouped(q, k.size(1))),
        k_(k.transpose(0, 1)),
        v_(v.transpose(0, 1)) {}

  Probabilities probabilities(const Tensor& mask) const {
    Probabilities result;
    Tensor scores = at::bmm(q_, k_.transpose(1, 2)).mul_(options_.scale).view(shape());
    if (options_.softcap > 0) {
      scores = scores.to(torch::kFloat).div_(options_.softcap).tanh_();
      result.slope = 1 - scores.square();
      scores.mul_(options_.softcap);
    }
    if (options_.slopes.defined()) {
      const Tensor keys = at::arange(seq_, q_.options().dtype(torch::kFloat));
      scores = scores.to(torch::kFloat)
                   .addcmul_(options_.slopes.view({heads_, 1, 1}), keys - keys.unsqueeze(1));
    }
    scores.add_(mask);
    if (!sinks_.defined()) {
      result.keys = at::softmax(scores, -1, torch::kFloat);
      return result;
    }
    const Tensor sinks = sinks_.to(scores.scalar_type()).view({heads_, 1, 1});
    const Tensor all =
        at::softmax(at::cat({scores, sinks.expand({heads_, seq_, 1})}, -1), -1, torch::kFloat);
    result.keys = all.narrow(2, 0, seq_).contiguous();
    result.sinks = all.select(2, seq_);
    return result;
  }

  // Returns [heads, seq, seq] bool, of row `row` of the batch; undefined if nothing is dropped. No
  // query sees the keys of another sample, whose elements are of no account.
  Tensor keep(int64_t row) const {
    if (options_.site.p == 0) return {};
    const int64_t begin = row * seq_;
    Tensor keep;
    for (const SeededSample& sample : options_.samples) {
      const int64_t first = sample.begin - begin, length = sample.end - sample.begin;
      if (first < 0 || first >= seq_) continue;
      const Tensor own = keep_of(sample.seed, length);
      if (length == seq_) return own;
      if (!keep.defined()) keep = own.new_ones(shape());
      keep.narrow(1, first, length).narrow(2, first, length).copy_(own);
    }
    return keep;
  }

  // Returns the matrix that multiplies v, [kv_heads, group * seq, seq].
  Tensor weights(const Tensor& probabilities, const Tensor& keep) const {
    const Tensor kept =
        keep.defined() ? at::mul(probabilities, keep).mul_(factor()) : probabilities;
    return kept.to(q_.scalar_type()).view(weights_shape());
  }

  Tensor output(const Tensor& weights) const { return separate(at::bmm(weights, v_)); }

  // Returns gradients of q, k, v, each [seq, its heads, its size], and of the sinks, [heads] fp32.
  TensorVector backward(const Tensor& dy, const Tensor& mask, int64_t row) const {
    const Probabilities p = probabilities(mask);
    const Tensor kept = keep(row), dout = grouped(dy, k_.size(0));
    const Tensor dv = at::bmm(weights(p.keys, kept).transpose(1, 2), dout);
    Tensor dp = at::bmm(dout, v_.transpose(1, 2)).view(shape()).to(torch::kFloat);
    if (kept.defined()) dp.mul_(kept).mul_(factor());
    Tensor dscores = at::_softmax_backward_data(dp, p.keys, -1, torch::kFloat);
    if (p.slope.defined()) dscores.mul_(p.slope);
    const Tensor ds = dscores.mul_(options_.scale).to(q_.scalar_type()).view(weights_shape());
    TensorVector gradients = {separate(at::bmm(ds, k_)),
                              at::bmm(ds.transpose(1, 2), q_).transpose(0, 1), dv.transpose(0, 1)};
    if (p.sinks.defined()) {
      gradients.push_back(at::mul(p.sinks, at::mul(dp, p.keys).sum(-1)).sum(-1).neg_());
    }
    return gradients;
  }

 private:
  // Returns [heads, length, length] bool, of a sample of this length.
  Tensor keep_of(int64_t seed, int64_t length) const {
    const int64_t all = options_.total_heads > 0 ? options_.total_heads : heads_;
    std::vector<int64_t> lines;
    for (int64_t head = options_.first_head; head < options_.first_head + heads_; ++head) {
      for (int64_t t = 0; t < length; ++t) lines.push_back(t * all + head);
    }
    return keep_mask(seed, options_.site, lines, length, q_.device())
        .view({heads_, length, length});
  }

  double factor() const { return 1 / (1 - options_.site.p); }
  std::vector<int64_t> shape() const { return {heads_, seq_, seq_}; }
  std::vector<int64_t> weights_shape() const { return {k_.size(0), q_.size(1), seq_}; }

  // Convert between [seq, heads, head_dim] and [kv_heads, group * seq, head_dim].
  Tensor grouped(const Tensor& x, int64_t kv_heads) const {
    return x.transpose(0, 1).reshape({kv_heads, heads_ / kv_heads * seq_, x.size(2)});
  }
  Tensor separate(const Tensor& x) const {
    return x.view({heads_, seq_, x.size(2)}).transpose(0, 1);
  }

  int64_t seq_;
  int64_t heads_;
  const FormulaAttentionOptions& options_;
  Tensor sinks_;  // [heads], or undefined
  Tensor q_, k_, v_;
};

class FormulaAttention final : public CustomFunction {
 public:
  explicit FormulaAttention(FormulaAttentionOptions options) : options_(std::move(options)) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    const Tensor &q = inputs[0], &k = inputs[1], &v = inputs[2], &mask = inputs[3];
    context.save_for_backward(inputs);
    const Tensor sinks = sinks_of(inputs);
    Tensor y = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
    for (int64_t b = 0; b < q.size(0); ++b) {
      const AttentionRow row(q[b], k[b], v[b], sinks, options_);
      const Tensor weights = row.weights(row.probabilities(mask_of(mask, b)).keys, row.keep(b));
      y[b].copy_(row.output(weights));
    }
    return {y};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const Tensor sinks = sinks_of(saved);
    TensorVector gradients = {at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                              at::empty(v.sizes(), v.options()), Tensor()};
    Tensor dsinks;
    for (int64_t b = 0; b < q.size(0); ++b) {
      const AttentionRow row(q[b], k[b], v[b], sinks, options_);
      const TensorVector of_row = row.backward(grads[0][b], mask_of(saved[3], b), b);
      for (size_t i = 0; i < 3; ++i) gradients[i][b].copy_(of_row[i]);
      if (of_row.size() > 3) dsinks = dsinks.defined() ? dsinks.add_(of_row[3]) : of_row[3];
    }
    if (dsinks.defined()) gradients.push_back(dsinks.to(sinks.scalar_type()));
    return gradients;
  }

 private:
  static Tensor sinks_of(const TensorVector& inputs) {
    return inputs.size() > 4 ? inputs[4] : Tensor();
  }
  static Tensor mask_of(const Tensor& mask, int64_t row) {
    return mask.dim() == 3 ? mask[row] : mask;
  }
  FormulaAttentionOptions options_;
};

}  // namespace

Tensor formula_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                         const FormulaAttentionOptions& options) {
  FormulaAttentionOptions own = options;
  TensorVector inputs = {q, k, v, mask};
  if (own.sinks.defined()) inputs.push_back(std::exchange(own.sinks, {}));
  return apply_function(std::make_shared<FormulaAttention>(std::move(own)), inputs)[0];
}

}  // namespace zeroth::model
