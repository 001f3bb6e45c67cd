// Products on the GPU whose sum is wider than their factors.
#include "model/kernels/matrix_product.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

namespace zeroth::model::product_test {

TEST_CASE("products of 16-bit factors are summed into fp32 on the GPU") {
  torch::manual_seed(6);
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    for (const int64_t rows : {1, 100, 513}) {
      const auto options = torch::dtype(torch::kFloat32).device(torch::kCUDA);
      const torch::Tensor a = torch::randn({rows, 64}, options).to(dtype);
      const torch::Tensor b = torch::randn({rows, 96}, options).to(dtype);
      const torch::Tensor exact =
          at::mm(a.to(torch::kFloat64).t(), b.to(torch::kFloat64)).to(torch::kFloat32);
      torch::Tensor out = torch::full({64, 96}, 3.f, options);
      REQUIRE(accumulates_in_fp32(out, a));
      write_matrix_product(out, a.t(), b);
      CHECK(at::allclose(out, exact, 1e-5, 1e-4));
      write_matrix_product(out, a.t(), b, /*add=*/true);
      CHECK(at::allclose(out, 2 * exact, 1e-5, 1e-4));
    }
  }
}

TEST_CASE("a product that is cut along its sum adds the parts in fp32") {
  torch::manual_seed(9);
  // As the gradient of few keys' weights: few tiles, a long sum.
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    const auto options = torch::dtype(torch::kFloat32).device(torch::kCUDA);
    const torch::Tensor a = torch::rand({16384, 256}, options).to(dtype);
    const torch::Tensor b = torch::rand({16384, 128}, options).div_(64).to(dtype);
    const torch::Tensor exact = at::mm(a.to(torch::kFloat64).t(), b.to(torch::kFloat64));
    const torch::Tensor error =
        ((matrix_product(a.t(), b).to(torch::kFloat64) - exact) / exact).abs();
    // One rounding, of the whole sum, whose 1024 additions of 16 products each may cut off 2^-24 of
    // it. Parts that are rounded before they are added are off by nearly twice as much.
    const double rounding = dtype == torch::kHalf ? 0x1p-11 : 0x1p-8;
    CHECK(error.max().item<double>() < rounding + 0x1p-14);
  }
}

}  // namespace zeroth::model::product_test
