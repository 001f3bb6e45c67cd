#include "model/kernels/attention_kernels.h"

#include <doctest/doctest.h>

#include <limits>

#include "tests/model/materialize.h"

namespace zeroth::model::dropout_attention_test {
namespace {

using torch::Tensor;

constexpr int64_t kSeq = 6, kHeads = 4, kDim = 8;

// Which probabilities stay, [batch, heads, seq, seq].
Tensor kept(const DropoutAttentionOptions& options) {
  std::vector<int64_t> lines;
  for (int64_t head = 0; head < kHeads; ++head) {
    for (int64_t t = 0; t < kSeq; ++t) lines.push_back(t * kHeads + head);
  }
  std::vector<Tensor> rows;
  for (const int64_t seed : options.row_seeds) {
    rows.push_back(
        keep_mask(seed, options.site, lines, kSeq, torch::kCPU).view({kHeads, kSeq, kSeq}));
  }
  return at::stack(rows);
}

Tensor formula(const std::vector<Tensor>& x, const Tensor& mask,
               const DropoutAttentionOptions& options) {
  const auto heads = [](const Tensor& t) {
    return t.repeat_interleave(kHeads / t.size(2), 2).transpose(1, 2);
  };
  const Tensor scores = at::matmul(heads(x[0]), heads(x[1]).transpose(2, 3)) * options.scale;
  const Tensor weights = (scores + mask).softmax(-1) * kept(options) / (1 - options.site.p);
  return at::matmul(weights, heads(x[2])).transpose(1, 2);
}

Tensor causal(const Tensor& like) {
  const Tensor seen = torch::ones({kSeq, kSeq}, torch::kBool).tril_();
  return torch::zeros({kSeq, kSeq}, like.options())
      .masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
}

}  // namespace

TEST_CASE("dropped attention and its gradients equal the formula, with grouped heads too") {
  torch::manual_seed(2);
  for (const int64_t kv_heads : {4, 2, 1}) {
    const DropoutAttentionOptions options{
        .scale = 0.3, .site = make_dropout_site(0.4, "attention"), .row_seeds = {21, -22}};
    std::vector<Tensor> x, wide;
    for (const int64_t heads : {kHeads, kv_heads, kv_heads}) {
      x.push_back(torch::randn({2, kSeq, heads, kDim}).requires_grad_());
      wide.push_back(x.back().detach().to(torch::kFloat64).requires_grad_());
    }
    const Tensor y = dropout_attention(x[0], x[1], x[2], causal(x[0]), options);
    const Tensor expected = formula(wide, causal(wide[0]), options);
    CHECK(difference(y.detach(), expected.detach()) < 1e-6);
    const Tensor dy = torch::randn(y.sizes());
    y.backward(dy);
    expected.backward(dy.to(torch::kFloat64));
    for (size_t i = 0; i < x.size(); ++i) CHECK(difference(x[i].grad(), wide[i].grad()) < 2e-6);
  }
}

TEST_CASE("rows of a batch do not depend on each other, bit for bit") {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  DropoutAttentionOptions options{
      .scale = 0.3, .site = make_dropout_site(0.4, "attention"), .row_seeds = {21, 22}};
  const Tensor q = torch::randn({2, kSeq, kHeads, kDim});
  const Tensor both = dropout_attention(q, q, q, causal(q), options);
  options.row_seeds = {22};
  const Tensor one = q.narrow(0, 1, 1);
  CHECK(torch::equal(dropout_attention(one, one, one, causal(q), options), both.narrow(0, 1, 1)));
}

}  // namespace zeroth::model::dropout_attention_test
