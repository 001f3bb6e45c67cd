#include <ATen/ops/_grouped_mm.h>
#include <doctest/doctest.h>

#include "model/kernels/matrix_product.h"
#include "tests/model/materialize.h"

namespace zeroth::model::grouped_product_test {

using torch::Tensor;

TEST_CASE("each group of rows is multiplied by its own matrix, in both layouts") {
  torch::manual_seed(1);
  const RowGroups groups = make_row_groups({3, 0, 4}, torch::kCPU);
  CHECK(groups.ends == std::vector<int64_t>{3, 3, 7});
  CHECK(groups.begin(2) == 3);
  CHECK(groups.rows(1) == 0);
  const Tensor a = torch::randn({7, 5}), bias = torch::randn({3, 6});
  for (const Tensor& matrices :
       {torch::randn({3, 5, 6}), torch::randn({3, 6, 5}).transpose(1, 2)}) {
    const Tensor expected = at::cat(
        {at::matmul(a.narrow(0, 0, 3), matrices[0]), at::matmul(a.narrow(0, 3, 4), matrices[2])});
    CHECK(difference(grouped_product(a, matrices, groups), expected) < 1e-6);
    const Tensor biased = expected + at::cat({bias[0].expand({3, 6}), bias[2].expand({4, 6})});
    CHECK(difference(grouped_product(a, matrices, groups, bias), biased) < 1e-6);
  }
}

TEST_CASE("gradients of matrices are written or added, and zero for a group without rows") {
  torch::manual_seed(2);
  const RowGroups groups = make_row_groups({2, 0, 5}, torch::kCPU);
  const Tensor a = torch::randn({7, 4}), b = torch::randn({7, 3});
  const Tensor expected =
      at::stack({at::matmul(a.narrow(0, 0, 2).t(), b.narrow(0, 0, 2)), torch::zeros({4, 3}),
                 at::matmul(a.narrow(0, 2, 5).t(), b.narrow(0, 2, 5))});
  const Tensor out = torch::full({3, 4, 3}, 9.0);
  write_grouped_wgrad(out, a, b, groups, /*add=*/false);
  CHECK(difference(out, expected) < 1e-6);
  write_grouped_wgrad(out, a, b, groups, /*add=*/true);
  CHECK(difference(out, 2 * expected) < 1e-6);
  // Rows in 16 bits, sums in fp32.
  const Tensor wide = torch::zeros({3, 4, 3});
  write_grouped_wgrad(wide, a.to(torch::kBFloat16), b.to(torch::kBFloat16), groups, /*add=*/true);
  CHECK(difference(wide, expected) < 2e-2);
}

TEST_CASE("LibTorch's product of groups, which a GPU takes, has the same meaning") {
  torch::manual_seed(3);
  const auto bf16 = torch::kBFloat16;
  const RowGroups groups = make_row_groups({8, 0, 16}, torch::kCPU);
  const Tensor ends = torch::tensor({8, 8, 24}, torch::kInt);
  const Tensor a = torch::randn({24, 16}).to(bf16), dy = torch::randn({24, 32}).to(bf16);
  const Tensor matrices = torch::randn({3, 32, 16}).to(bf16);
  CHECK(difference(at::_grouped_mm(a, matrices.transpose(1, 2), ends).to(torch::kFloat),
                   grouped_product(a, matrices.transpose(1, 2), groups).to(torch::kFloat)) < 1e-2);
  const Tensor out = torch::empty({3, 32, 16}, bf16);
  write_grouped_wgrad(out, dy, a, groups, /*add=*/false);
  CHECK(difference(at::_grouped_mm(dy.t(), a, ends).to(torch::kFloat), out.to(torch::kFloat)) <
        1e-2);
}

}  // namespace zeroth::model::grouped_product_test
