#include "model/kernels/attention_kernels.h"

#include <doctest/doctest.h>

#include <limits>

#include "tests/model/materialize.h"

namespace zeroth::model::formula_attention_test {
namespace {

using torch::Tensor;

constexpr int64_t kSeq = 6, kHeads = 4, kDim = 8;

// Samples that have a row each.
std::vector<SeededSample> rows(const std::vector<int64_t>& seeds) {
  std::vector<SeededSample> samples;
  for (const int64_t seed : seeds) {
    const int64_t begin = std::ssize(samples) * kSeq;
    samples.push_back({.begin = begin, .end = begin + kSeq, .seed = seed});
  }
  return samples;
}

// Which probabilities stay, [batch, heads, seq, seq].
Tensor kept(const FormulaAttentionOptions& options) {
  std::vector<int64_t> lines;
  for (int64_t head = 0; head < kHeads; ++head) {
    for (int64_t t = 0; t < kSeq; ++t) lines.push_back(t * kHeads + head);
  }
  std::vector<Tensor> rows;
  for (const SeededSample& sample : options.samples) {
    rows.push_back(
        keep_mask(sample.seed, options.site, lines, kSeq, torch::kCPU).view({kHeads, kSeq, kSeq}));
  }
  return at::stack(rows);
}

Tensor formula(const std::vector<Tensor>& x, const Tensor& mask,
               const FormulaAttentionOptions& options) {
  const auto heads = [](const Tensor& t) {
    return t.repeat_interleave(kHeads / t.size(2), 2).transpose(1, 2);
  };
  Tensor scores = at::matmul(heads(x[0]), heads(x[1]).transpose(2, 3)) * options.scale;
  if (options.softcap > 0) scores = (scores / options.softcap).tanh() * options.softcap;
  if (options.slopes.defined()) {
    const Tensor keys = torch::arange(kSeq);
    scores = scores - (keys.unsqueeze(1) - keys) * options.slopes.view({kHeads, 1, 1});
  }
  scores = scores + (mask.dim() == 3 ? mask.unsqueeze(1) : mask);
  if (x.size() > 3) {
    const Tensor sinks = x[3].view({1, kHeads, 1, 1}).expand({scores.size(0), kHeads, kSeq, 1});
    scores = at::cat({scores, sinks}, 3);
  }
  Tensor weights = scores.softmax(-1).narrow(3, 0, kSeq);
  if (options.site.p > 0) weights = weights * kept(options) / (1 - options.site.p);
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
    const FormulaAttentionOptions options{
        .scale = 0.3, .site = make_dropout_site(0.4, "attention"), .samples = rows({21, -22})};
    std::vector<Tensor> x, wide;
    for (const int64_t heads : {kHeads, kv_heads, kv_heads}) {
      x.push_back(torch::randn({2, kSeq, heads, kDim}).requires_grad_());
      wide.push_back(x.back().detach().to(torch::kFloat64).requires_grad_());
    }
    const Tensor y = formula_attention(x[0], x[1], x[2], causal(x[0]), options);
    const Tensor expected = formula(wide, causal(wide[0]), options);
    CHECK(difference(y.detach(), expected.detach()) < 1e-6);
    const Tensor dy = torch::randn(y.sizes());
    y.backward(dy);
    expected.backward(dy.to(torch::kFloat64));
    for (size_t i = 0; i < x.size(); ++i) CHECK(difference(x[i].grad(), wide[i].grad()) < 2e-6);
  }
}

TEST_CASE(
    "the formula caps and lowers scores, adds sinks, has values of another size and masks per "
    "row") {
  torch::manual_seed(4);
  for (const double p : {0.0, 0.4}) {
    FormulaAttentionOptions options{.scale = 0.7,
                                    .softcap = 1.5,
                                    .slopes = torch::rand({kHeads}),
                                    .site = make_dropout_site(p, "attention")};
    if (p > 0) options.samples = rows({21, 22});
    std::vector<Tensor> x = {torch::randn({2, kSeq, kHeads, kDim}),
                             torch::randn({2, kSeq, 2, kDim}), torch::randn({2, kSeq, 2, 12}),
                             torch::randn({kHeads})};
    std::vector<Tensor> wide;
    for (Tensor& t : x) wide.push_back(t.requires_grad_().detach().to(torch::kFloat64));
    for (Tensor& t : wide) t.requires_grad_();
    Tensor mask = at::stack({causal(x[0]), causal(x[0])});
    mask[1].narrow(0, 3, 3).narrow(1, 0, 3).fill_(-std::numeric_limits<double>::infinity());
    options.sinks = x[3];
    const Tensor y = formula_attention(x[0], x[1], x[2], mask, options);
    const Tensor expected = formula(wide, mask.to(torch::kFloat64), options);
    CHECK(difference(y.detach(), expected.detach()) < 2e-6);
    const Tensor dy = torch::randn(y.sizes());
    y.backward(dy);
    expected.backward(dy.to(torch::kFloat64));
    for (size_t i = 0; i < x.size(); ++i) CHECK(difference(x[i].grad(), wide[i].grad()) < 4e-6);
  }
}

TEST_CASE("rows of a batch do not depend on each other, bit for bit") {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  FormulaAttentionOptions options{
      .scale = 0.3, .site = make_dropout_site(0.4, "attention"), .samples = rows({21, 22})};
  const Tensor q = torch::randn({2, kSeq, kHeads, kDim});
  const Tensor both = formula_attention(q, q, q, causal(q), options);
  options.samples = rows({22});
  const Tensor one = q.narrow(0, 1, 1);
  CHECK(torch::equal(formula_attention(one, one, one, causal(q), options), both.narrow(0, 1, 1)));
}

TEST_CASE("samples that share a row drop what each drops alone") {
  torch::manual_seed(5);
  const FormulaAttentionOptions together{
      .scale = 0.3,
      .site = make_dropout_site(0.4, "attention"),
      .samples = {{.begin = 0, .end = 2, .seed = 21}, {.begin = 2, .end = kSeq, .seed = 22}}};
  const Tensor x = torch::randn({1, kSeq, kHeads, kDim}).requires_grad_();
  Tensor mask = causal(x);
  mask.narrow(0, 2, kSeq - 2).narrow(1, 0, 2).fill_(-std::numeric_limits<double>::infinity());
  const Tensor y = formula_attention(x, x, x, mask, together);
  const Tensor dy = torch::randn(y.sizes());
  y.backward(dy);
  const Tensor gradient = x.grad().clone();
  for (const SeededSample& sample : together.samples) {
    const int64_t begin = sample.begin, length = sample.end - sample.begin;
    FormulaAttentionOptions alone = together;
    alone.samples = {{.begin = 0, .end = length, .seed = sample.seed}};
    const Tensor own = x.detach().narrow(1, begin, length).clone().requires_grad_();
    const Tensor own_mask = causal(x).narrow(0, 0, length).narrow(1, 0, length);
    const Tensor expected = formula_attention(own, own, own, own_mask, alone);
    expected.backward(dy.narrow(1, begin, length));
    CHECK(difference(y.detach().narrow(1, begin, length), expected.detach()) < 1e-6);
    CHECK(difference(gradient.narrow(1, begin, length), own.grad()) < 2e-6);
  }
}

}  // namespace zeroth::model::formula_attention_test
