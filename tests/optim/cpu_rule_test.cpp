#include "optim/cpu/cpu_rule.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/optim/cpu_arrays.h"
#include "tests/optim/flat_state.h"

namespace zeroth::optim {

TEST_CASE("the rule on host memory gives the bits of LibTorch's kernels, its copy too") {
  constexpr int64_t kCount = 64 * 1000;
  for (const OptimizerConfig& config : cpu_rules()) {
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
      FlatState tensors(config, initial(kCount), kRuleMakers[0]);
      FlatState host(config, initial(kCount), kRuleMakers[1]);
      const torch::Tensor copies[] = {at::zeros({kCount}, torch::kBFloat16),
                                      at::zeros({kCount}, torch::kBFloat16)};
      for (int64_t update = 1; update <= 3; ++update) {
        const torch::Tensor grad = gradient(kCount, update).to(dtype);
        tensors.rule->apply({tensors.master, grad.clone(), tensors.states, copies[0]},
                            tensors.step(update, 0.37));
        host.rule->apply({host.master, grad, host.states, copies[1]}, host.step(update, 0.37));
      }
      CAPTURE(static_cast<int>(config.kind));
      // LibTorch's loops for other processors fuse no products.
      if (!libtorch_fuses_products()) {
        CHECK(host.master.allclose(tensors.master, /*rtol=*/1e-5, /*atol=*/1e-6));
        continue;
      }
      CHECK(host.master.equal(tensors.master));
      CHECK(copies[1].equal(copies[0]));
      for (size_t i = 0; i < host.states.size(); ++i)
        CHECK(host.states[i].equal(tensors.states[i]));
    }
  }
}

TEST_CASE("a rule on host memory knows its states, and how they start, from its formula") {
  for (const OptimizerConfig& config : cpu_rules()) {
    const CpuRule host(config);
    const auto tensors = make_tensor_rule(config);
    CHECK(std::ranges::equal(host.state_names(), tensors->state_names()));
    CHECK(host.initial_state() == tensors->initial_state());
  }
  CHECK(CpuRule({.kind = Kind::kAdagrad, .initial_accumulator_value = 0.5}).initial_state() == 0.5);
}

TEST_CASE("a rule on host memory leaves its gradient as it is") {
  FlatState state({}, initial(100), kRuleMakers[1]);
  const torch::Tensor grad = gradient(100, 1);
  state.apply(grad, 1, 0.3);
  CHECK(grad.equal(gradient(100, 1)));
}

TEST_CASE("a rule says what rests in bf16, and rounds it by the numbers of the elements") {
  const OptimizerConfig config{.bf16_states = true, .bf16_masters = true};
  const CpuRule rule(config);
  CHECK((CpuRule({}).master_dtype() == torch::kFloat32));
  CHECK((CpuRule({}).state_dtype() == torch::kFloat32));
  CHECK((rule.master_dtype() == torch::kBFloat16));
  CHECK((rule.state_dtype() == torch::kBFloat16));
  CHECK((CpuRule({.bf16_masters = true}).state_dtype() == torch::kFloat32));
  const auto updated = [&](const std::vector<int64_t>& bounds, uint64_t seed) {
    const torch::Tensor all = initial(1000).to(torch::kBFloat16);
    const std::vector<torch::Tensor> states = {at::zeros_like(all), at::zeros_like(all)};
    UpdateStep step = default_step(config, 1);
    step.rounding_seed = seed;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      const auto part = [&](const torch::Tensor& x) {
        return x.slice(0, bounds[i], bounds[i + 1]);
      };
      std::vector<torch::Tensor> of_part = {part(states[0]), part(states[1])};
      rule.apply({part(all), part(gradient(1000, 1)), of_part, {}, bounds[i]}, step);
    }
    return at::stack({all, states[0], states[1]});
  };
  const torch::Tensor whole = updated({0, 1000}, 1);
  CHECK(updated({0, 300, 301, 1000}, 1).equal(whole));
  CHECK_FALSE(updated({0, 1000}, 2).equal(whole));
  CHECK(updated({0, 1000}, 2).allclose(whole, /*rtol=*/0x1p-7, /*atol=*/0));
}

TEST_CASE("what would lose a bf16 range's bits is refused") {
  const CpuRule rule({.bf16_states = true, .bf16_masters = true});
  const torch::Tensor narrow = at::zeros({8}, torch::kBFloat16), wide = at::zeros({8});
  std::vector<torch::Tensor> states = {narrow, narrow}, wide_states = {wide, wide};
  const auto step = default_step({}, 1);
  CHECK_NOTHROW(rule.apply({narrow, narrow, states}, step));
  CHECK_THROWS_AS(rule.apply({wide, narrow, states}, step), InternalError);
  CHECK_THROWS_AS(rule.apply({narrow, narrow, wide_states}, step), InternalError);
  CHECK_THROWS_AS(rule.apply({narrow, narrow, states, narrow}, step), InternalError);
  CHECK_THROWS_AS(CpuRule({}).apply({narrow, narrow, wide_states}, step), InternalError);
  CHECK_THROWS_AS(make_update_rule({.bf16_masters = true}, torch::kCUDA), Error);
}

TEST_CASE("a rule on host memory refuses a range that rests elsewhere") {
  const torch::Tensor elsewhere = at::zeros({8}, torch::Device(torch::kMeta));
  std::vector<torch::Tensor> states = {elsewhere, elsewhere};
  CHECK_THROWS_AS(CpuRule({}).apply({elsewhere, elsewhere, states}, default_step({}, 1)),
                  InternalError);
}

}  // namespace zeroth::optim
