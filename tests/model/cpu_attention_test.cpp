#include "model/kernels/attention_kernels.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "tests/model/materialize.h"

namespace zeroth::model::cpu_attention_test {
namespace {

using torch::Tensor;

constexpr torch::ScalarType kDtypes[] = {torch::kFloat32, torch::kBFloat16, torch::kHalf};

double tolerance(torch::ScalarType dtype) {
  return dtype == torch::kFloat32 ? 2e-6 : dtype == torch::kHalf ? 2e-3 : 1e-2;
}

struct Sizes4 {
  int64_t batch, seq, heads, kv_heads, dim;
};

// In fp64, with every head's own keys and a mask.
Tensor formula(const std::vector<Tensor>& x, const CausalAttention& options) {
  const int64_t seq = x[0].size(1), heads = x[0].size(2);
  const auto wide = [&](const Tensor& t) {
    return t.repeat_interleave(heads / t.size(2), 2).transpose(1, 2);
  };
  Tensor scores = at::matmul(wide(x[0]), wide(x[1]).transpose(2, 3)) * options.scale;
  const Tensor row = torch::arange(seq).unsqueeze(1), column = torch::arange(seq).unsqueeze(0);
  Tensor hidden = column > row;
  if (options.window > 0) hidden = hidden.logical_or(column <= row - options.window);
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::matmul(scores.softmax(-1), wide(x[2])).transpose(1, 2);
}

std::vector<Tensor> inputs(const Sizes4& s, torch::ScalarType dtype) {
  std::vector<Tensor> x;
  for (const int64_t heads : {s.heads, s.kv_heads, s.kv_heads}) {
    x.push_back(torch::randn({s.batch, s.seq, heads, s.dim}).to(dtype).requires_grad_());
  }
  return x;
}

// Largest differences of output and gradients, each relative to the largest magnitude.
void check(const Sizes4& sizes, const CausalAttention& options, torch::ScalarType dtype,
           double limit) {
  CAPTURE(sizes.seq);
  CAPTURE(options.window);
  const std::vector<Tensor> x = inputs(sizes, dtype);
  REQUIRE(cpu_attention_supports(x[0]));
  std::vector<Tensor> wide;
  for (const Tensor& t : x) wide.push_back(t.detach().to(torch::kFloat64).requires_grad_());
  const Tensor y = cpu_attention(x[0], x[1], x[2], options);
  const Tensor expected = formula(wide, options);
  CHECK(difference(y.detach(), expected.detach()) < limit);
  const Tensor dy = torch::randn(y.sizes()).to(dtype);
  y.backward(dy);
  expected.backward(dy.to(torch::kFloat64));
  for (size_t i = 0; i < x.size(); ++i) {  // a token that sees itself alone has gradients of 0
    const Tensor gap = (x[i].grad() - wide[i].grad()).abs().max();
    const Tensor size = wide[i].grad().abs().max().clamp_min(1);
    CHECK((gap / size).item<double>() < 2 * limit);
  }
}

// Whether this processor has the kernel at all; the tests are empty elsewhere.
bool here(torch::ScalarType dtype) {
  return cpu_attention_supports(torch::zeros({1, 1, 1, 16}, torch::dtype(dtype)));
}

}  // namespace

TEST_CASE("attention in tiles equals the formula, for whole and ragged tiles and windows") {
  torch::manual_seed(21);
  for (const auto dtype : kDtypes) {
    if (!here(dtype)) continue;
    for (const int64_t seq : {1, 5, 63, 64, 65, 130, 256}) {
      check({2, seq, 4, 2, 32}, {.scale = 0.2}, dtype, tolerance(dtype));
    }
    for (const int64_t window : {1, 3, 64, 65, 100, 129, 500}) {
      check({1, 200, 2, 1, 16}, {.scale = 0.3, .window = window}, dtype, tolerance(dtype));
    }
  }
}

TEST_CASE("attention in tiles takes every grouping of heads and many sizes of a head") {
  torch::manual_seed(22);
  for (const auto dtype : kDtypes) {
    if (!here(dtype)) continue;
    for (const int64_t kv_heads : {6, 3, 2, 1}) {
      check({2, 70, 6, kv_heads, 48}, {.scale = 0.15}, dtype, tolerance(dtype));
    }
    for (const int64_t dim : {16, 64, 80, 128, 256}) {
      check({1, 100, 2, 2, dim}, {.scale = 0.1}, dtype, tolerance(dtype));
    }
  }
  CHECK(!cpu_attention_supports(torch::zeros({1, 8, 2, 24})));
  CHECK(!cpu_attention_supports(torch::zeros({1, 8, 2, 272})));
  CHECK(!cpu_attention_supports(torch::zeros({1, 8, 2, 64}, torch::kFloat64)));
}

TEST_CASE("queries, keys and values may be parts of one product") {
  if (!here(torch::kFloat32)) return;
  torch::manual_seed(23);
  const torch::NoGradGuard no_grad;
  const Tensor qkv = torch::randn({3, 70, 12, 16});
  const std::vector<Tensor> parts = qkv.split_with_sizes({4, 4, 4}, 2);
  const Tensor y = cpu_attention(parts[0], parts[1], parts[2], {.scale = 0.25});
  CHECK(torch::equal(y, cpu_attention(parts[0].contiguous(), parts[1].contiguous(),
                                      parts[2].contiguous(), {.scale = 0.25})));
  const Tensor turned = parts[0].transpose(1, 2).contiguous().transpose(1, 2);
  CHECK(torch::equal(y, cpu_attention(turned, parts[1], parts[2], {.scale = 0.25})));
}

TEST_CASE("scores far apart neither overflow nor lose a row") {
  if (!here(torch::kFloat32)) return;
  torch::manual_seed(24);
  check({1, 130, 2, 2, 16}, {.scale = 40}, torch::kFloat32, 2e-5);
}

TEST_CASE("attention in tiles is bit-equal again and with more threads") {
  if (!here(torch::kBFloat16)) return;
  torch::manual_seed(25);
  const std::vector<Tensor> x = inputs({4, 150, 4, 2, 32}, torch::kBFloat16);
  const Tensor dy = torch::randn({4, 150, 4, 32}).to(torch::kBFloat16);
  const int threads = at::get_num_threads();
  std::vector<std::vector<Tensor>> results;
  for (const int count : {1, 1, 2}) {
    at::set_num_threads(count);
    for (const Tensor& t : x) t.mutable_grad() = Tensor();
    const Tensor y = cpu_attention(x[0], x[1], x[2], {.scale = 0.2});
    y.backward(dy);
    results.push_back({y.detach(), x[0].grad(), x[1].grad(), x[2].grad()});
  }
  at::set_num_threads(threads);
  for (size_t run = 1; run < results.size(); ++run) {
    for (size_t i = 0; i < 4; ++i) CHECK(torch::equal(results[run][i], results[0][i]));
  }
}

}  // namespace zeroth::model::cpu_attention_test
