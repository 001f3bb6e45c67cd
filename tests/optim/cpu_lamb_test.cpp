#include "optim/cpu/cpu_lamb.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/optim/cpu_arrays.h"
#include "tests/optim/flat_state.h"

namespace zeroth::optim {
namespace {

using torch::Tensor;

constexpr OptimizerConfig kLamb = {.kind = Kind::kLamb, .weight_decay = 0.1};

struct Result {
  Tensor master, first, second, copy;

  bool equal(const Result& other) const {
    return master.equal(other.master) && first.equal(other.first) && second.equal(other.second) &&
           (!copy.defined() || copy.equal(other.copy));
  }
};

// One parameter after three updates.
Result after(const UpdateRule& rule, int64_t count, torch::Dtype grad,
             std::optional<torch::Dtype> copy) {
  Result all = {initial(count), at::zeros({count}), at::zeros({count}), {}};
  if (copy) all.copy = at::zeros({count}, *copy);
  std::vector<Tensor> states = {all.first, all.second};
  for (int64_t update = 1; update <= 3; ++update) {
    UpdateStep step = default_step(kLamb, update);
    step.grad_factor = 0.37;
    update_parameter(rule, {all.master, gradient(count, update).to(grad), states, all.copy}, step);
  }
  return all;
}

}  // namespace

TEST_CASE("Lamb on the host has the same bits at every level, and rounds its copy of the weights") {
  for (const int64_t count : {1, 7, 16, 33, 100, 4'099, 70'001}) {
    for (const auto grad : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
      for (const auto copy : {torch::kBFloat16, torch::kFloat16}) {
        const Result plain = after(CpuLamb(kLamb, CpuIsa::kBaseline), count, grad, copy);
        CAPTURE(count);
        CHECK(plain.copy.equal(plain.master.to(copy)));
        for (const CpuIsa level : cpu_levels()) {
          CHECK(after(CpuLamb(kLamb, level), count, grad, copy).equal(plain));
          CHECK(after(CpuLamb(kLamb, level), count, grad, {}).master.equal(plain.master));
        }
      }
    }
  }
}

TEST_CASE("Lamb on the host follows LibTorch's operators") {
  for (const bool inside : {false, true}) {
    OptimizerConfig config = kLamb;
    config.eps_inside_sqrt = inside;
    for (const auto grad : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
      const Result host = after(CpuLamb(config), 70'001, grad, torch::kBFloat16);
      const Result tensors = after(Lamb(config), 70'001, grad, torch::kBFloat16);
      CHECK(host.master.allclose(tensors.master, /*rtol=*/1e-6, /*atol=*/1e-7));
      CHECK(host.first.allclose(tensors.first, /*rtol=*/1e-6, /*atol=*/1e-7));
      CHECK(host.second.allclose(tensors.second, /*rtol=*/1e-6, /*atol=*/1e-9));
    }
  }
}

TEST_CASE("the number of threads does not change Lamb's norms") {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Result alone = after(CpuLamb(kLamb), 300'001, torch::kFloat32, {});
  for (const int more : {2, 3, 5}) {
    at::set_num_threads(more);
    CHECK(after(CpuLamb(kLamb), 300'001, torch::kFloat32, {}).equal(alone));
  }
  at::set_num_threads(threads);
}

TEST_CASE("the norms of long parameters are summed in fp64") {
  constexpr int64_t kLong = int64_t{5} << 20;  // more than a part of the rule
  for (const bool host : {false, true}) {
    const auto rule = host ? make_update_rule(kLamb, torch::kCPU) : make_tensor_rule(kLamb);
    const Tensor master = at::full({kLong}, 0.1F), sums = at::zeros({1, 2}, torch::kDouble);
    std::vector<Tensor> states = {at::zeros({kLong}), at::zeros({kLong})};
    const ParamGroupRange whole{0, kLong};
    rule->norm_pass()->sum({master, at::zeros({kLong}), states}, default_step(kLamb, 1),
                           {&whole, 1}, sums);
    const double square = double{0.1F} * double{0.1F} * static_cast<double>(kLong);
    CHECK(sums[0][0].item<double>() == doctest::Approx(square).epsilon(1e-12));
    const double decay = double{0.1F * 0.1F} * double{0.1F * 0.1F} * static_cast<double>(kLong);
    CHECK(sums[0][1].item<double>() == doctest::Approx(decay).epsilon(1e-7));
  }
}

TEST_CASE("a tile elsewhere, or a level that is not there, is refused") {
  const Tensor elsewhere = at::zeros({8}, torch::Device(torch::kMeta));
  std::vector<Tensor> states = {elsewhere, elsewhere};
  const ParamGroupRange whole{0, 8};
  CHECK_THROWS_AS(
      CpuLamb(kLamb).norm_pass()->sum({elsewhere, elsewhere, states}, default_step(kLamb, 1),
                                      {&whole, 1}, at::zeros({1, 2}, torch::kDouble)),
      InternalError);
  if (detected_cpu_isa() < CpuIsa::kAvx512) {
    CHECK_THROWS_AS(CpuLamb(kLamb, CpuIsa::kAvx512), InternalError);
  }
}

}  // namespace zeroth::optim
