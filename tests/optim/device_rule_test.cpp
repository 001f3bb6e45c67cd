// The rule for a GPU on the CPU: what a thread of the kernel does, with the plain lanes of the
// host.
#include "optim/device_rule.h"

#include <doctest/doctest.h>
#include <torch/library.h>

#include "base/error.h"
#include "optim/device_step.h"
#include "optim/host_rule.h"
#include "tests/optim/flat_state.h"
#include "tests/optim/host_arrays.h"

#define ZEROTH_INLINE inline
#include "optim/host_lanes_plain.h"
//
#include "optim/gpu/update_four.h"

namespace zeroth::optim {
namespace {

using torch::Tensor;

kernel::Format format_of(const Tensor& x) {
  if (x.scalar_type() == torch::kFloat32) return kernel::kFp32;
  return x.scalar_type() == torch::kBFloat16 ? kernel::kBf16 : kernel::kFp16;
}

template <typename Rule>
void run(const kernel::DeviceUpdate& update, const Tensor& master, at::TensorList states) {
  using kernel::Bf16;
  const bool bf16_master = format_of(master) == kernel::kBf16;
  const bool bf16_states = !states.empty() && format_of(states[0]) == kernel::kBf16;
  for (int64_t i = 0; i < update.count; i += kernel::kFour) {
    if (!bf16_master) {
      kernel::update_four<Rule, float, float>(update, i);
    } else if (bf16_states) {
      kernel::update_four<Rule, Bf16, Bf16>(update, i);
    } else {
      kernel::update_four<Rule, Bf16, float>(update, i);
    }
  }
}

// As update_cuda of optim/gpu/update_op.cpp.
void update_on_cpu(const Tensor& master, const Tensor& grad, at::TensorList states,
                   const std::optional<Tensor>& copy, at::IntArrayRef words) {
  kernel::Words numbers;
  REQUIRE(words.size() == numbers.size());
  std::copy(words.begin(), words.end(), numbers.begin());
  const kernel::DeviceStep step = kernel::step_of(numbers);
  kernel::DeviceUpdate update;
  update.constants = step.constants;
  update.number = step.number;
  std::copy(std::begin(step.keys), std::end(step.keys), update.keys);
  update.count = master.numel();
  update.master = master.data_ptr();
  update.grad = grad.const_data_ptr();
  update.grad_format = format_of(grad);
  for (size_t i = 0; i < states.size(); ++i) update.states[i] = states[i].data_ptr();
  if (copy) {
    update.copy = copy->data_ptr();
    update.copy_format = format_of(*copy);
  }
  const auto fits = [](const Tensor& x) {
    return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % (4 * x.element_size()) == 0;
  };
  update.aligned = fits(master) && fits(grad) && (!copy || fits(*copy)) &&
                   std::all_of(states.begin(), states.end(), fits);
  const auto with = step.formula == kernel::kAdam      ? run<kernel::Adam>
                    : step.formula == kernel::kLion    ? run<kernel::Lion>
                    : step.formula == kernel::kAdagrad ? run<kernel::Adagrad>
                    : step.formula == kernel::kSgd     ? run<kernel::Sgd>
                                                       : run<kernel::SgdMomentum>;
  with(update, master, states);
}

TORCH_LIBRARY_IMPL(zeroth, CPU, library) {
  library.impl("update_", update_on_cpu);
}

struct Case {
  OptimizerConfig config;
  torch::Dtype grad;
  std::optional<torch::Dtype> copy;
};

// Three updates of `count` elements by `rule` from element `first` of longer tensors on.
std::vector<Tensor> updated(const Case& what, const UpdateRule& rule, int64_t first,
                            int64_t count) {
  const auto range = [&](const Tensor& x, torch::Dtype dtype) {
    return x.to(dtype).clone().slice(0, first, first + count);
  };
  const int64_t room = first + count;
  const Tensor master = range(initial(room), rule.master_dtype());
  std::vector<Tensor> states;
  for (size_t i = 0; i < rule.state_names().size(); ++i) {
    states.push_back(range(gradient(room, 7).abs() / 100, rule.state_dtype()));
  }
  const Tensor copy = what.copy ? range(at::zeros({room}), *what.copy) : Tensor();
  for (int64_t update = 1; update <= 3; ++update) {
    UpdateRule::Step step = usual_step(what.config, update);
    step.weight_decay = 0.1;
    step.grad_factor = 0.37;
    step.rounding_seed = 5;
    // The lower half of the elements' numbers wraps around within the range.
    rule.apply(
        {master, range(gradient(room, update), what.grad), states, copy, (int64_t{7} << 32) - 30},
        step);
  }
  std::vector<Tensor> all = {master};
  all.insert(all.end(), states.begin(), states.end());
  if (copy.defined()) all.push_back(copy);
  return all;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (OptimizerConfig config : host_rules()) {
    for (const auto grad : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
      all.push_back({config, grad, {}});
      all.push_back({config, grad, torch::kBFloat16});
      all.push_back({config, grad, torch::kFloat16});
    }
    config.bf16_masters = true;
    all.push_back({config, torch::kFloat32, {}});
    config.bf16_states = true;
    all.push_back({config, torch::kBFloat16, {}});
  }
  return all;
}

}  // namespace

TEST_CASE("a kernel of a GPU, its lanes those of the host, gives the bits of the host's rule") {
  for (const Case& what : cases()) {
    for (const int64_t first : {0, 3}) {
      for (const int64_t count : {0, 1, 4, 7, 1000, 4099}) {
        const auto expected = updated(what, HostRule(what.config), first, count);
        const auto got = updated(what, DeviceRule(what.config), first, count);
        CAPTURE(static_cast<int>(what.config.kind));
        CAPTURE(count);
        CAPTURE(first);
        for (size_t i = 0; i < expected.size(); ++i) CHECK(got[i].equal(expected[i]));
      }
    }
  }
}

TEST_CASE("without the GPU library a rule for a GPU is made of LibTorch's operators") {
  CHECK_FALSE(DeviceRule::runs_on(torch::kCUDA));
  CHECK_FALSE(DeviceRule::runs_on(torch::kCPU));
}

TEST_CASE("a rule for a GPU checks its range like any other") {
  const Tensor narrow = at::zeros({8}, torch::kBFloat16);
  std::vector<Tensor> states = {narrow, narrow};
  CHECK_THROWS_AS(DeviceRule({}).apply({narrow, narrow, states}, usual_step({}, 1)), InternalError);
  const DeviceRule rule({.bf16_states = true, .bf16_masters = true});
  CHECK_THROWS_AS(rule.apply({narrow, narrow, states, {}, -1}, usual_step({}, 1)), InternalError);
}

}  // namespace zeroth::optim
