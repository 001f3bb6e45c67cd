#include "model/kernels/dropout.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "tests/model/materialize.h"

namespace zeroth::model::dropout_test {
namespace {

using torch::Tensor;

std::vector<int64_t> first_lines(int64_t count) {
  std::vector<int64_t> lines(static_cast<size_t>(count));
  std::iota(lines.begin(), lines.end(), 0);
  return lines;
}

Tensor mask(int64_t row_seed, const DropoutSite& site, int64_t lines = 64, int64_t size = 512) {
  return keep_mask(row_seed, site, first_lines(lines), size, torch::kCPU).to(torch::kFloat64);
}

// Of a row for each sample, as long as those of x.
MicroBatch batch_like(const Tensor& x, std::vector<int64_t> sample_seeds) {
  MicroBatch result;
  result.tokens = torch::zeros({x.size(0), x.size(1)}, torch::kInt64);
  result.sample_seeds = std::move(sample_seeds);
  return result;
}

// Correlation of two masks of a site with 1/2: 0 but for chance, which is 1 / sqrt(numel).
double correlation(const Tensor& a, const Tensor& b) {
  return ((2 * a - 1) * (2 * b - 1)).mean().item<double>();
}

}  // namespace

TEST_CASE("each element is dropped with the chance asked for, and variance is that of a coin") {
  for (const double p : {0.01, 0.1, 0.5, 0.9}) {
    CAPTURE(p);
    const Tensor keep = mask(7, make_dropout_site(p, "layers.0"), 256, 4096);
    const double deviation = std::sqrt(p * (1 - p) / static_cast<double>(keep.numel()));
    CHECK(std::abs(keep.mean().item<double>() - (1 - p)) < 4 * deviation);
    // Sums of 4096 vary as binomial ones do: within 4 deviations of a variance over 256 sums.
    const double variance = keep.sum(1).var().item<double>() / (4096 * p * (1 - p));
    CHECK(std::abs(variance - 1) < 4 * std::sqrt(2.0 / 255));
    const double over_lines = keep.sum(0).var().item<double>() / (256 * p * (1 - p));
    CHECK(std::abs(over_lines - 1) < 4 * std::sqrt(2.0 / 4095));
  }
}

TEST_CASE("masks of other samples, steps, sites, lines and neighbours are independent") {
  const DropoutSite site = make_dropout_site(0.5, "layers.0.mlp");
  const Tensor first = mask(7, site);
  const double chance = 4 / std::sqrt(static_cast<double>(first.numel()));
  CHECK(std::abs(correlation(first, mask(8, site))) < chance);
  CHECK(std::abs(correlation(first, mask(7 + (int64_t{1} << 40), site))) < chance);
  CHECK(std::abs(correlation(first, mask(7, make_dropout_site(0.5, "layers.1.mlp")))) < chance);
  CHECK(std::abs(correlation(first, mask(7, make_dropout_site(0.5, "layers.0.attention")))) <
        chance);
  for (const int64_t shift : {1, 2, 8, 63}) {
    CHECK(std::abs(correlation(first, first.roll(shift, 1))) < chance);
    CHECK(std::abs(correlation(first, first.roll(shift, 0))) < chance);
  }
}

TEST_CASE("tensor operations give the bits of the loop") {
  for (const double p : {0.1, 0.5}) {
    const DropoutSite site = make_dropout_site(p, "embedding");
    const std::vector<int64_t> lines = {0, 1, 5, 100000, int64_t{1} << 40};
    for (const int64_t seed : {int64_t{3}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
      CHECK(torch::equal(keep_mask(seed, site, lines, 1001, torch::kCPU),
                         keep_mask_from_tensors(seed, site, lines, 1001, torch::kCPU)));
    }
  }
}

TEST_CASE("a shorter line, fewer lines and a smaller batch see the same mask") {
  const DropoutSite site = make_dropout_site(0.3, "layers.2");
  const Tensor whole = mask(5, site, 64, 512);
  CHECK(torch::equal(mask(5, site, 9, 40), whole.narrow(0, 0, 9).narrow(1, 0, 40)));
  const Tensor x = torch::randn({3, 5, 7});
  const Tensor together = dropout(x, site, batch_like(x, {11, 12, 13}));
  const Tensor split =
      at::cat({dropout(x.narrow(0, 0, 1), site, batch_like(x.narrow(0, 0, 1), {11})),
               dropout(x.narrow(0, 1, 2), site, batch_like(x.narrow(0, 1, 2), {12, 13}))});
  CHECK(torch::equal(together, split));
}

TEST_CASE("what stays is divided by 1 - p, and so is its gradient") {
  torch::manual_seed(1);
  const DropoutSite site = make_dropout_site(0.25, "head");
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    const Tensor x = torch::randn({2, 6, 33}).to(dtype).requires_grad_();
    const Tensor y = dropout(x, site, batch_like(x, {1, 2}));
    const Tensor keep = at::stack({mask(1, site, 6, 33), mask(2, site, 6, 33)});
    const auto expected = [&](const Tensor& value) {
      return (value.detach().to(torch::kFloat64) * keep / 0.75).to(dtype);
    };
    CHECK(difference(y.detach(), expected(x)) < (dtype == torch::kFloat32 ? 1e-7 : 1e-9));
    const Tensor dy = torch::randn({2, 6, 33}).to(dtype);
    y.backward(dy);
    CHECK(difference(x.grad(), expected(dy)) < (dtype == torch::kFloat32 ? 1e-7 : 1e-9));
    CHECK(torch::equal(dropout(x, site, batch_like(x, {1, 2})), y));  // recompute
  }
}

TEST_CASE("evaluation drops nothing; training without row seeds is an error") {
  const DropoutSite site = make_dropout_site(0.5, "x");
  const Tensor x = torch::randn({2, 3, 4});
  MicroBatch eval = batch_like(x, {1, 2});
  eval.sample_seeds.clear();
  CHECK_THROWS_AS(dropout(x, site, eval), Error);
  CHECK_THROWS_AS(dropout(x, make_dropout_site(0.5, "x"),
                          [&] {
                            MicroBatch short_of_one = batch_like(x, {1, 2});
                            short_of_one.sample_seeds.pop_back();
                            return short_of_one;
                          }()),
                  Error);
  CHECK(torch::equal(dropout(x, make_dropout_site(0, "x"), eval), x));
  const torch::NoGradGuard no_grad;
  CHECK(torch::equal(dropout(x, site, eval), x));
}

TEST_CASE("samples that share a row drop what each drops in a row of its own") {
  const DropoutSite site = make_dropout_site(0.5, "x");
  const Tensor x = torch::randn({2, 6, 5});
  MicroBatch packed = batch_like(x, {1, 2, 3});
  packed.first_keys =
      torch::tensor({0, 0, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0}, torch::kInt64).view({2, 6});
  const Tensor y = dropout(x, site, packed);
  const auto alone = [&](int64_t row, int64_t begin, int64_t length, int64_t seed) {
    const Tensor own = x.narrow(0, row, 1).narrow(1, begin, length);
    return dropout(own, site, batch_like(own, {seed}));
  };
  CHECK(torch::equal(y.narrow(0, 0, 1), at::cat({alone(0, 0, 2, 1), alone(0, 2, 4, 2)}, 1)));
  CHECK(torch::equal(y.narrow(0, 1, 1), alone(1, 0, 6, 3)));
  // The tokens that one rank of a tensor axis has.
  const Tensor part = x.flatten(0, 1).narrow(0, 4, 5);
  CHECK(torch::equal(dropout(part, site, packed, 4), y.flatten(0, 1).narrow(0, 4, 5)));
  packed.sample_seeds.pop_back();
  CHECK_THROWS_AS(dropout(x, site, packed), Error);
}

}  // namespace zeroth::model::dropout_test
