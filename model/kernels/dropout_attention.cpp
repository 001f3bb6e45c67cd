#include "model/kernels/attention_kernels.h"

#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/softmax.h>

#include "model/custom_function.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// An AttentionRow is one row of the batch. The queries of the heads that share keys are stacked, so
// that no key is copied: q [kv_heads, group * seq, head_dim], k and v [kv_heads, seq, head_dim].
class AttentionRow {
 public:
  AttentionRow(const Tensor& q, const Tensor& k, const Tensor& v,
               const DropoutAttentionOptions& options)
      : seq_(q.size(0)),
        heads_(q.size(1)),
        options_(options),
        q_(grouped(q, k.size(1))),
        k_(k.transpose(0, 1)),
        v_(v.transpose(0, 1)) {}

  // Returns [heads, seq, seq] fp32.
  Tensor probabilities(const Tensor& mask) const {
    const Tensor scores = at::bmm(q_, k_.transpose(1, 2)).mul_(options_.scale);
    return at::softmax(scores.view({heads_, seq_, seq_}).add_(mask), -1, torch::kFloat);
  }

  // Returns [heads, seq, seq] bool.
  Tensor keep(int64_t row_seed) const {
    const int64_t all = options_.total_heads > 0 ? options_.total_heads : heads_;
    std::vector<int64_t> lines;
    for (int64_t head = options_.first_head; head < options_.first_head + heads_; ++head) {
      for (int64_t t = 0; t < seq_; ++t) lines.push_back(t * all + head);
    }
    return keep_mask(row_seed, options_.site, lines, seq_, q_.device()).view({heads_, seq_, seq_});
  }

  // Returns the matrix that multiplies v, [kv_heads, group * seq, seq].
  Tensor weights(const Tensor& probabilities, const Tensor& keep) const {
    return at::mul(probabilities, keep).mul_(factor()).to(q_.scalar_type()).view(weights_shape());
  }

  Tensor output(const Tensor& weights) const { return separate(at::bmm(weights, v_)); }

  // Returns gradients of q, k, v, each [seq, its heads, head_dim].
  TensorVector backward(const Tensor& dy, const Tensor& mask, int64_t row_seed) const {
    const Tensor p = probabilities(mask), kept = keep(row_seed);
    const Tensor dout = grouped(dy, k_.size(0));
    const Tensor dv = at::bmm(weights(p, kept).transpose(1, 2), dout);
    const Tensor dweights = at::bmm(dout, v_.transpose(1, 2)).view(p.sizes());
    const Tensor dp = dweights.to(torch::kFloat).mul_(kept).mul_(factor());
    const Tensor ds = at::_softmax_backward_data(dp, p, -1, torch::kFloat)
                          .mul_(options_.scale)
                          .to(q_.scalar_type())
                          .view(weights_shape());
    return {separate(at::bmm(ds, k_)), at::bmm(ds.transpose(1, 2), q_).transpose(0, 1),
            dv.transpose(0, 1)};
  }

 private:
  double factor() const { return 1 / (1 - options_.site.p); }
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
  const DropoutAttentionOptions& options_;
  Tensor q_, k_, v_;
};

class DropoutAttention final : public CustomFunction {
 public:
  explicit DropoutAttention(const DropoutAttentionOptions& options) : options_(options) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    const Tensor &q = inputs[0], &k = inputs[1], &v = inputs[2], &mask = inputs[3];
    context.save_for_backward(inputs);
    Tensor y = at::empty(q.sizes(), q.options());
    for (int64_t b = 0; b < q.size(0); ++b) {
      const AttentionRow row(q[b], k[b], v[b], options_);
      const Tensor weights = row.weights(row.probabilities(mask), row.keep(row_seed(b)));
      y[b].copy_(row.output(weights));
    }
    return {y};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    TensorVector gradients = {at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                              at::empty(v.sizes(), v.options()), Tensor()};
    for (int64_t b = 0; b < q.size(0); ++b) {
      const AttentionRow row(q[b], k[b], v[b], options_);
      const TensorVector of_row = row.backward(grads[0][b], saved[3], row_seed(b));
      for (size_t i = 0; i < of_row.size(); ++i) gradients[i][b].copy_(of_row[i]);
    }
    return gradients;
  }

 private:
  int64_t row_seed(int64_t row) const { return options_.row_seeds[static_cast<size_t>(row)]; }

  DropoutAttentionOptions options_;
};

}  // namespace

Tensor dropout_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                         const DropoutAttentionOptions& options) {
  return apply_function(std::make_shared<DropoutAttention>(options), {q, k, v, mask})[0];
}

}  // namespace zeroth::model
