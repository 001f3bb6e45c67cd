// The rule for a GPU on the CPU: what a thread of the kernel does, with the plain lanes of the
// host.
#include "optim/device_rule.h"

#include <doctest/doctest.h>
#include <torch/library.h>

#include "base/error.h"
#include "optim/device_step.h"
#include "tests/optim/rule_cases.h"

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

}  // namespace

TEST_CASE("a kernel of a GPU, its lanes those of the host, gives the bits of the host's rule") {
  expect_bits_of_host(torch::kCPU, {0, 1, 4, 7, 1000, 4099});
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
