#include "model/kernels/matrix_product.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/machine/cpu.h"
#include "tests/support/all_products.h"

namespace zeroth::model::matrix_product_test {
namespace {

// Values in (-0.5, 0.5), the same each time.
torch::Tensor values(int64_t rows, int64_t columns, torch::Dtype dtype) {
  const torch::Tensor counter = torch::arange(rows * columns, torch::kDouble);
  return ((counter * 0.6180339887).frac() - 0.5).view({rows, columns}).to(dtype);
}

double error_of(const torch::Tensor& product, const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor exact = at::mm(a.to(torch::kDouble), b.to(torch::kDouble));
  return (product.to(torch::kDouble) - exact).abs().max().item<double>();
}

}  // namespace

TEST_CASE("every product that is forced equals fp64's, and is the one that is named") {
  const torch::Tensor a = values(190, 201, torch::kFloat), b = values(201, 150, torch::kFloat);
  for (const std::string& name : testing::all_products()) {
    CAPTURE(name);
    const MatmulBackendGuard forced(name);
    const torch::Tensor product = matrix_product(a, b);
    CHECK(error_of(product, a, b) < 2e-5);
    torch::Tensor tiles = torch::empty({190, 150});
    tiled_product(tiles, a, b, /*add=*/false);
    if (name == "libtorch") CHECK(at::equal(product, at::mm(a, b)));
    const torch::Tensor small = matrix_product(a.narrow(0, 0, 3), b);
    CHECK(error_of(small, a.narrow(0, 0, 3), b) < 2e-5);
    if (name == "tiles") CHECK(at::equal(product, tiles));
    const torch::Tensor bias = values(1, 150, torch::kFloat).view({-1});
    CHECK(error_of(matrix_product(a, b, bias) - bias, a, b) < 2e-5);
    torch::Tensor out = torch::ones({190, 150});
    write_matrix_product(out, a, b, /*add=*/true);
    CHECK(error_of(out - 1, a, b) < 2e-5);
    write_matrix_product(out, a, b);
    CHECK(at::equal(out, product));
    for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
      const torch::Tensor narrow = a.to(dtype), factor = b.to(dtype);
      CHECK((prefers_fp32(narrow) || name != "tiles"));
      CHECK(error_of(matrix_product(narrow, factor), narrow, factor) < 0.1);
      if (!prefers_fp32(narrow)) continue;
      torch::Tensor wide = torch::empty({190, 150});
      write_matrix_product(wide, narrow, factor);
      CHECK(error_of(wide, narrow, factor) < 2e-5);
    }
  }
}

TEST_CASE("products equal fp64's for small and large shapes, straight and transposed") {
  for (const int64_t size :
       {3, 40, 190}) {  // 190^3 is above the size at which the library may change
    for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
      CAPTURE(size);
      const double tolerance = dtype == torch::kFloat ? 2e-5 : dtype == torch::kHalf ? 0.01 : 0.1;
      const torch::Tensor a = values(size, size + 1, dtype), b = values(size + 1, size + 2, dtype);
      CHECK(error_of(matrix_product(a, b), a, b) < tolerance);
      const torch::Tensor at = a.t().contiguous().t(), bt = b.t().contiguous().t();
      CHECK(error_of(matrix_product(at, bt), a, b) < tolerance);
      CHECK(error_of(matrix_product(a.narrow(1, 0, size), b.narrow(0, 1, size)),
                     a.narrow(1, 0, size), b.narrow(0, 1, size)) < tolerance);
      const torch::Tensor bias = values(1, size + 2, dtype).view({-1});
      CHECK(error_of(matrix_product(a, b, bias) - bias, a, b) < tolerance * 2);
    }
  }
}

TEST_CASE("write_matrix_product adds to what is there, also into a view") {
  const torch::Tensor a = values(150, 160, torch::kFloat), b = values(160, 170, torch::kFloat);
  const torch::Tensor flat = torch::ones({150 * 170 + 5});
  const torch::Tensor out = flat.narrow(0, 2, 150 * 170).view({150, 170});
  write_matrix_product(out, a, b, /*add=*/true);
  CHECK(error_of(out - 1, a, b) < 2e-5);
  CHECK(flat[1].item<float>() == 1);
  CHECK(flat[-1].item<float>() == 1);
}

TEST_CASE("16-bit products are added up in fp32 where nothing stands against it") {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    const torch::Tensor a = values(150, 160, dtype), b = values(160, 170, dtype);
    torch::Tensor narrow = torch::ones({150, 170}, dtype), wide = torch::ones({150, 170});
    write_matrix_product(narrow, a, b, /*add=*/true);
    CHECK(error_of(narrow - 1, a, b) < 0.2);
    CHECK(accumulates_in_fp32(wide, a) == prefers_fp32(a));
    CHECK(!accumulates_in_fp32(narrow, a));
    if (!accumulates_in_fp32(wide, a)) continue;
    write_matrix_product(wide, a, b, /*add=*/true);
    CHECK(error_of(wide - 1, a, b) < 2e-5);
    write_matrix_product(wide, a, b);
    CHECK(error_of(wide, a, b) < 2e-5);
  }
}

TEST_CASE("only 16-bit formats that are multiplied in tiles are widened") {
  const auto of = [](torch::Dtype dtype) { return torch::zeros({1}, torch::dtype(dtype)); };
  CHECK(!prefers_fp32(of(torch::kFloat)));
  CHECK(!prefers_fp32(of(torch::kDouble)));
  CHECK(prefers_fp32(of(torch::kBFloat16)) == (matmul_backends().bf16 == MatmulBackend::kTiles));
  CHECK(prefers_fp32(of(torch::kHalf)) == (matmul_backends().fp16 == MatmulBackend::kTiles));
  CHECK(!prefers_fp32(torch::zeros({1}, torch::dtype(torch::kHalf).device(torch::kMeta))));
}

TEST_CASE("the same product twice gives the same bits") {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    const torch::Tensor a = values(200, 210, dtype), b = values(210, 220, dtype);
    CHECK(at::equal(matrix_product(a, b), matrix_product(a, b)));
  }
}

}  // namespace zeroth::model::matrix_product_test
