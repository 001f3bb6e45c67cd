#include "comm/groups/reduce_parts.h"

#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <cmath>

namespace zeroth::comm::reduce_parts_test {

TEST_CASE("bf16 sums of many parts are rounded once: 256 and 1 + ... + 1 do not stay 256") {
  std::vector<torch::Tensor> parts = {torch::full({3}, 256, torch::kBFloat16)};
  for (int i = 0; i < 4; ++i) parts.push_back(torch::ones({3}, torch::kBFloat16));
  torch::Tensor scratch;
  const torch::Tensor out = torch::empty({3}, torch::kBFloat16);
  reduce_parts(ReduceOp::kSum, out, parts, scratch);
  CHECK(at::equal(out, torch::full({3}, 260, torch::kBFloat16)));
}

TEST_CASE("the result may be any of the parts") {
  for (const size_t own : {0, 1, 2}) {
    std::vector<torch::Tensor> parts = {torch::full({3}, 1.0), torch::full({3}, 10.0),
                                        torch::full({3}, 100.0)};
    torch::Tensor scratch;
    reduce_parts(ReduceOp::kSum, parts[own], parts, scratch);
    CHECK(at::equal(parts[own], torch::full({3}, 111.0)));
  }
}

TEST_CASE("the least and the most of the parts; what is not a number wins") {
  torch::Tensor scratch;
  const torch::Tensor out = torch::empty({2});
  const std::vector<torch::Tensor> parts = {
      torch::tensor({1.0F, 5.0F}), torch::tensor({3.0F, -INFINITY}), torch::tensor({2.0F, 0.0F})};
  reduce_parts(ReduceOp::kMax, out, parts, scratch);
  CHECK(at::equal(out, torch::tensor({3.0F, 5.0F})));
  reduce_parts(ReduceOp::kMin, out, parts, scratch);
  CHECK(at::equal(out, torch::tensor({1.0F, -INFINITY})));
  reduce_parts(ReduceOp::kMin, out, {torch::tensor({1.0F, NAN}), torch::zeros({2})}, scratch);
  CHECK(std::isnan(out[1].item<float>()));
}

}  // namespace zeroth::comm::reduce_parts_test
