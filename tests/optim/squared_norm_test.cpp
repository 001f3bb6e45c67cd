#include "optim/squared_norm.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

namespace zeroth::optim {

TEST_CASE("the norm of a large unit is exact to fp32") {
  // Summed in fp32 lanes this one is off by 2e-3.
  const torch::Tensor large = torch::full({(1 << 24) + 3}, 1e-3f);
  large.narrow(0, 0, 1 << 23).fill_(3e-3f);
  const double expected = (1 << 23) * 9e-6 + ((1 << 23) + 3) * 1e-6;
  CHECK(squared_norm({large}, torch::kCPU).item<double>() ==
        doctest::Approx(expected).epsilon(1e-6));
}

TEST_CASE("the norm of several tensors is that of all, empty and 16-bit ones among them") {
  CHECK(squared_norm({}, torch::kCPU).item<double>() == 0);
  const torch::Tensor narrow = torch::full({5}, 3.0, torch::kBFloat16);
  CHECK(squared_norm({torch::full({3}, 2.0f), torch::zeros({0}), narrow}, torch::kCPU)
            .item<double>() == doctest::Approx(57));
}

}  // namespace zeroth::optim
