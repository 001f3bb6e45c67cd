#include "model/kernels/matrix_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <doctest/doctest.h>

#include <limits>

#include "base/error.h"

namespace zeroth::model::tiled_product_test {
namespace {

using torch::Tensor;

constexpr torch::ScalarType kDtypes[] = {torch::kFloat32, torch::kBFloat16, torch::kHalf};

// How a matrix lies in memory.
enum class Lie { kRows, kColumns, kPartOfRows, kPartOfColumns, kSparse, kRepeated };
constexpr Lie kLies[] = {Lie::kRows,          Lie::kColumns, Lie::kPartOfRows,
                         Lie::kPartOfColumns, Lie::kSparse,  Lie::kRepeated};

Tensor matrix(int64_t rows, int64_t columns, torch::ScalarType dtype, Lie lie) {
  const auto random = [&](int64_t m, int64_t n) { return at::rand({m, n}).sub(0.5).to(dtype); };
  switch (lie) {
    case Lie::kRows:
      return random(rows, columns);
    case Lie::kColumns:
      return random(columns, rows).t();
    case Lie::kPartOfRows:
      return random(rows + 2, columns + 3).narrow(0, 1, rows).narrow(1, 2, columns);
    case Lie::kPartOfColumns:
      return random(columns + 2, rows + 3).narrow(0, 1, columns).narrow(1, 2, rows).t();
    case Lie::kSparse:
      return at::rand({rows, columns, 2}).sub(0.5).to(dtype).select(2, 1);
    case Lie::kRepeated:
      return random(1, columns).expand({rows, columns});
  }
  return {};
}

// Elements are below 0.5: a sum of k products of them is rounded by this much.
double max_error(int64_t k, torch::ScalarType out) {
  const double sum = 0.25 * static_cast<double>(k);
  if (out == torch::kBFloat16) return sum / 256 + 1e-7;
  return out == torch::kHalf ? sum / 2048 + 1e-7 : sum * 1e-6 + 1e-7;
}

void check(const Tensor& out, const Tensor& a, const Tensor& b) {
  CAPTURE(a.sizes());
  CAPTURE(b.sizes());
  CAPTURE(c10::toString(a.scalar_type()));
  CAPTURE(c10::toString(out.scalar_type()));
  const Tensor exact = at::mm(a.to(torch::kDouble), b.to(torch::kDouble));
  const Tensor before = out.to(torch::kDouble);
  tiled_product(out, a, b, /*add=*/false);
  const double limit = max_error(a.size(1), out.scalar_type());
  CHECK(out.to(torch::kDouble).sub(exact).abs().max().item<double>() <= limit);
  out.copy_(before);
  tiled_product(out, a, b, /*add=*/true);
  const double more = limit + max_error(4, out.scalar_type());
  CHECK(out.to(torch::kDouble).sub(exact).sub(before).abs().max().item<double>() <= more);
}

}  // namespace

TEST_CASE("tiled products equal fp64's in every order of their factors and results") {
  torch::manual_seed(31);
  for (const auto dtype : kDtypes) {
    for (const Lie a : kLies) {
      for (const Lie b : kLies) {
        check(matrix(70, 90, dtype, Lie::kRows), matrix(70, 130, dtype, a),
              matrix(130, 90, dtype, b));
      }
    }
    for (const Lie out : kLies) {
      if (out == Lie::kRepeated) continue;
      for (const auto wide : {dtype, torch::kFloat32}) {
        check(matrix(33, 65, wide, out), matrix(33, 40, dtype, Lie::kRows),
              matrix(40, 65, dtype, Lie::kColumns));
        check(matrix(80, 96, wide, out), matrix(80, 48, dtype, Lie::kRows),
              matrix(48, 96, dtype, Lie::kColumns));
      }
    }
  }
}

TEST_CASE("tiled products equal fp64's for sizes around those of tiles and blocks") {
  torch::manual_seed(32);
  for (const auto dtype : kDtypes) {
    for (const int64_t m : {1, 15, 64, 65, 513, 592}) {
      for (const int64_t k : {1, 17, 512, 1030}) {
        for (const int64_t n : {1, 48, 63, 64, 577, 592}) {
          check(matrix(m, n, dtype, Lie::kRows), matrix(m, k, dtype, Lie::kRows),
                matrix(k, n, dtype, Lie::kColumns));
        }
      }
    }
  }
}

TEST_CASE("a product of nothing is nothing, and zeros where sums are empty") {
  const Tensor empty = torch::ones({3, 0}, torch::kHalf);
  Tensor out = torch::ones({3, 2}, torch::kHalf);
  tiled_product(out, empty, torch::ones({0, 2}, torch::kHalf), /*add=*/true);
  CHECK(out.eq(1).all().item<bool>());
  tiled_product(out, empty, torch::ones({0, 2}, torch::kHalf), /*add=*/false);
  CHECK(out.eq(0).all().item<bool>());
  Tensor none = torch::ones({0, 2}, torch::kHalf);
  tiled_product(none, torch::ones({0, 5}, torch::kHalf), torch::ones({5, 2}, torch::kHalf), false);
  CHECK(none.numel() == 0);
}

TEST_CASE("what is not a number, and what overflows fp16, shows in a tiled product") {
  Tensor a = torch::full({20, 70}, 200, torch::kHalf);
  a[3][69] = std::numeric_limits<double>::quiet_NaN();
  Tensor out = torch::zeros({20, 30}, torch::kHalf);
  tiled_product(out, a, torch::full({70, 30}, 200, torch::kHalf), /*add=*/false);
  CHECK(out[3].isnan().all().item<bool>());
  CHECK(out[2].isinf().all().item<bool>());
  Tensor sum = torch::zeros({20, 30});
  tiled_product(sum, a, torch::full({70, 30}, 200, torch::kHalf), /*add=*/false);
  CHECK(sum[2].eq(70 * 40000).all().item<bool>());
}

TEST_CASE("a tiled product has the same bits again, with other threads and in parts") {
  torch::manual_seed(33);
  const int threads = at::get_num_threads();
  const auto check_bits = [&](torch::ScalarType dtype, int64_t m, int64_t n) {
    CAPTURE(m);
    const Tensor a = matrix(m, 1100, dtype, Lie::kRows);
    const Tensor b = matrix(1100, n, dtype, Lie::kColumns);
    const Tensor start = at::rand({m, n});
    std::vector<Tensor> results;
    for (const int count : {1, 1, 2, 5}) {
      at::set_num_threads(count);
      results.push_back(start.clone());
      tiled_product(results.back(), a, b, /*add=*/true);
    }
    at::set_num_threads(threads);
    Tensor part = start.narrow(0, 300, 123).narrow(1, 411, 77).clone();
    tiled_product(part, a.narrow(0, 300, 123), b.narrow(1, 411, 77), /*add=*/true);
    for (const Tensor& other : results) CHECK(torch::equal(other, results[0]));
    CHECK(torch::equal(part, results[0].narrow(0, 300, 123).narrow(1, 411, 77)));
  };
  for (const auto dtype : kDtypes) {
    check_bits(dtype, 700, 600);
    check_bits(dtype, 704, 608);  // sums lie in the result itself
  }
}

TEST_CASE("a tiled product counts as a write in place") {
  const Tensor out = torch::zeros({2, 2}), a = torch::ones({2, 2});
  const auto version = out._version();
  tiled_product(out, a, a, /*add=*/true);
  CHECK(out._version() == version + 1);
}

TEST_CASE("factors that do not fit each other are refused") {
  Tensor out = torch::zeros({2, 2});
  CHECK_THROWS_AS(tiled_product(out, torch::zeros({2, 3}), torch::zeros({4, 2}), false),
                  InternalError);
  CHECK_THROWS_AS(tiled_product(out, torch::zeros({2, 3}), torch::zeros({3, 3}), false),
                  InternalError);
  CHECK_THROWS_AS(tiled_product(out, torch::zeros({2, 3}, torch::kDouble),
                                torch::zeros({3, 2}, torch::kDouble), false),
                  InternalError);
}

}  // namespace zeroth::model::tiled_product_test
