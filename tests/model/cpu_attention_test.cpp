#include "model/kernels/attention_kernels.h"

#include <doctest/doctest.h>

#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/model/materialize.h"

namespace zeroth::model::cpu_attention_test {
namespace {

using torch::Tensor;

constexpr torch::ScalarType kDtypes[] = {torch::kFloat32, torch::kBFloat16, torch::kHalf};

double tolerance(torch::ScalarType dtype) {
  return dtype == torch::kFloat32 ? 2e-6 : dtype == torch::kHalf ? 2e-3 : 1e-2;
}

struct Sizes {
  int64_t batch, seq, heads, kv_heads, dim;
  int64_t v_dim = 0;  // 0: dim
};

// In fp64, with every head's own keys and a mask; x[3] are the sinks.
Tensor formula(const std::vector<Tensor>& x, const CausalAttention& options) {
  const int64_t seq = x[0].size(1), heads = x[0].size(2);
  const auto wide = [&](const Tensor& t) {
    return t.repeat_interleave(heads / t.size(2), 2).transpose(1, 2);
  };
  Tensor scores = at::matmul(wide(x[0]), wide(x[1]).transpose(2, 3)) * options.scale;
  const Tensor row = torch::arange(seq).unsqueeze(1), column = torch::arange(seq).unsqueeze(0);
  if (options.softcap > 0) scores = (scores / options.softcap).tanh() * options.softcap;
  if (options.slopes.defined())
    scores = scores - (row - column) * options.slopes.to(torch::kFloat64).view({heads, 1, 1});
  Tensor hidden = column > row;
  if (options.window > 0) hidden = hidden.logical_or(column <= row - options.window);
  if (options.first_keys.defined()) {
    hidden = hidden.logical_or(column < options.first_keys.unsqueeze(2)).unsqueeze(1);
  }
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  if (x.size() > 3) {
    const Tensor sinks = x[3].view({1, heads, 1, 1}).expand({scores.size(0), heads, seq, 1});
    scores = at::cat({scores, sinks}, 3);
  }
  return at::matmul(scores.softmax(-1).narrow(3, 0, seq), wide(x[2])).transpose(1, 2);
}

std::vector<Tensor> inputs(const Sizes& s, torch::ScalarType dtype) {
  std::vector<Tensor> x;
  const auto add = [&](int64_t heads, int64_t size) {
    x.push_back(torch::randn({s.batch, s.seq, heads, size}).to(dtype).requires_grad_());
  };
  add(s.heads, s.dim);
  add(s.kv_heads, s.dim);
  add(s.kv_heads, s.v_dim == 0 ? s.dim : s.v_dim);
  return x;
}

// The first tokens of samples of these lengths, in rows of `seq` tokens; the last fills its row.
Tensor packed(int64_t seq, const std::vector<std::vector<int64_t>>& lengths) {
  Tensor first = torch::zeros({std::ssize(lengths), seq}, torch::kLong);
  for (int64_t row = 0; row < std::ssize(lengths); ++row) {
    int64_t begin = 0;
    for (const int64_t length : lengths[static_cast<size_t>(row)]) {
      begin += length;
      first[row].narrow(0, begin, seq - begin).fill_(begin);
    }
  }
  return first;
}

// Largest differences of output and gradients, each relative to the largest magnitude.
void check(const Sizes& sizes, CausalAttention options, torch::ScalarType dtype, double limit) {
  CAPTURE(sizes.seq);
  CAPTURE(options.window);
  CAPTURE(options.softcap);
  std::vector<Tensor> x = inputs(sizes, dtype);
  REQUIRE(cpu_attention_supports(x[0], x[2]));
  if (options.sinks.defined()) {
    options.sinks = options.sinks.to(dtype).requires_grad_();
    x.push_back(options.sinks);
  }
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
bool supports(int64_t dim, int64_t v_dim, torch::ScalarType dtype) {
  const auto zeros = [&](int64_t size) { return torch::zeros({1, 8, 2, size}, dtype); };
  return cpu_attention_supports(zeros(dim), zeros(v_dim));
}

bool here(torch::ScalarType dtype) {
  return supports(16, 16, dtype);
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
    for (const int64_t dim : {16, 64, 80, 128, 256, 512}) {
      check({1, 100, 2, 2, dim}, {.scale = 0.1}, dtype, tolerance(dtype));
    }
  }
  CHECK(!supports(24, 24, torch::kFloat));
  CHECK(!supports(528, 528, torch::kFloat));
  CHECK(!supports(64, 24, torch::kFloat));
  CHECK(!supports(64, 64, torch::kFloat64));
}

TEST_CASE("attention in tiles sees each sample of a row alone") {
  torch::manual_seed(26);
  for (const auto dtype : kDtypes) {
    if (!here(dtype)) continue;
    CausalAttention options{.scale = 0.2, .first_keys = packed(200, {{64, 1, 70}, {3, 190}, {}})};
    for (const int64_t window : {0, 5, 100}) {
      options.window = window;
      check({3, 200, 4, 2, 32}, options, dtype, tolerance(dtype));
    }
  }
}

TEST_CASE("samples of one row have the bits of rows of their own, at a tile's beginning") {
  if (!here(torch::kFloat32)) return;
  torch::manual_seed(27);
  const torch::NoGradGuard no_grad;
  const std::vector<Tensor> x = inputs({1, 128, 2, 1, 16}, torch::kFloat32);
  const Tensor y = cpu_attention(x[0], x[1], x[2], {.first_keys = packed(128, {{64}})});
  for (const int64_t begin : {0, 64}) {
    const auto part = [&](const Tensor& t) { return t.narrow(1, begin, 64); };
    CHECK(torch::equal(part(y), cpu_attention(part(x[0]), part(x[1]), part(x[2]), {})));
  }
}

TEST_CASE("a token that sees nothing, or later ones, is refused") {
  if (!here(torch::kFloat32)) return;
  const std::vector<Tensor> x = inputs({1, 4, 1, 1, 16}, torch::kFloat32);
  for (const int64_t first : {-1, 3}) {
    const Tensor keys = torch::full({1, 4}, first, torch::kLong);
    CHECK_THROWS_AS(cpu_attention(x[0], x[1], x[2], {.first_keys = keys}), InternalError);
  }
}

TEST_CASE("attention in tiles caps scores, adds sinks, and has values of another size") {
  torch::manual_seed(28);
  for (const auto dtype : kDtypes) {
    if (!here(dtype)) continue;
    const double limit = tolerance(dtype);
    for (const double softcap : {0.5, 2.0, 50.0}) {
      check({2, 130, 4, 2, 32}, {.scale = 0.4, .softcap = softcap}, dtype, limit);
    }
    check({2, 130, 4, 2, 32}, {.scale = 0.2, .sinks = torch::randn({4})}, dtype, limit);
    check({1, 90, 4, 1, 16}, {.scale = 0.2, .sinks = torch::full({4}, 9.0)}, dtype, limit);
    for (const auto& [dim, v_dim] : {std::pair{16, 64}, {64, 16}, {192, 128}}) {
      check({2, 100, 4, 2, dim, v_dim}, {.scale = 0.1}, dtype, limit);
    }
    check({2, 150, 4, 2, 48, 32},
          {.scale = 0.3,
           .window = 40,
           .first_keys = packed(150, {{70}, {20, 90}}),
           .softcap = 3,
           .sinks = torch::randn({4})},
          dtype, 2 * limit);
  }
}

TEST_CASE("attention in tiles lowers scores by distances, as steep as the head says") {
  torch::manual_seed(29);
  for (const auto dtype : kDtypes) {
    if (!here(dtype)) continue;
    const double limit = tolerance(dtype);
    const Tensor slopes = torch::tensor({0.5F, 0.01F, 0.1F, 0.002F});
    check({2, 200, 4, 4, 32}, {.scale = 0.2, .slopes = slopes}, dtype, limit);
    check({1, 70, 4, 2, 16}, {.scale = 0.05, .slopes = 2 * slopes}, dtype, limit);
    check({2, 200, 4, 1, 48, 32},
          {.scale = 0.3,
           .window = 40,
           .first_keys = packed(200, {{70}, {64, 90}}),
           .sinks = torch::randn({4}),
           .slopes = torch::tensor({9.0F, 0.5F, 0.01F, 0.1F, 0.002F}).narrow(0, 1, 4)},
          dtype, 2 * limit);
  }
}

TEST_CASE("slopes of other heads, or beside a softcap, are refused") {
  if (!here(torch::kFloat32)) return;
  const std::vector<Tensor> x = inputs({1, 4, 2, 1, 16}, torch::kFloat32);
  const auto attend = [&](const CausalAttention& options) {
    return cpu_attention(x[0], x[1], x[2], options);
  };
  CHECK_THROWS_AS(attend({.slopes = torch::ones({1})}), InternalError);
  CHECK_THROWS_AS(attend({.slopes = torch::ones({2}, torch::kFloat64)}), InternalError);
  CHECK_THROWS_AS(attend({.softcap = 1, .slopes = torch::ones({2})}), InternalError);
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
