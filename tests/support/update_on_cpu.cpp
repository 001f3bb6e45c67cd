#include "tests/support/update_on_cpu.h"

#include <algorithm>

#include "base/error.h"
#include "optim/device_step.h"

#define ZEROTH_INLINE inline
#include "optim/host_lanes_plain.h"
//
#include "optim/gpu/update_four.h"

namespace zeroth::optim::kernel {
namespace {

using torch::Tensor;

Format format_of(const Tensor& x) {
  if (x.scalar_type() == torch::kFloat32) return kFp32;
  return x.scalar_type() == torch::kBFloat16 ? kBf16 : kFp16;
}

template <typename Rule>
void run(const DeviceUpdate& update, const Tensor& master, at::TensorList states) {
  const bool bf16_master = format_of(master) == kBf16;
  const bool bf16_states = !states.empty() && format_of(states[0]) == kBf16;
  for (int64_t i = 0; i < update.count; i += kFour) {
    if (!bf16_master) {
      update_four<Rule, float, float>(update, i);
    } else if (bf16_states) {
      update_four<Rule, Bf16, Bf16>(update, i);
    } else {
      update_four<Rule, Bf16, float>(update, i);
    }
  }
}

}  // namespace
}  // namespace zeroth::optim::kernel

namespace zeroth::testing {

using namespace optim::kernel;  // NOLINT

void update_on_cpu(const torch::Tensor& master, const torch::Tensor& grad, at::TensorList states,
                   const std::optional<torch::Tensor>& copy, at::IntArrayRef words) {
  Words numbers;
  ZEROTH_CHECK(words.size() == numbers.size(), "{} words of a step", words.size());
  std::copy(words.begin(), words.end(), numbers.begin());
  const DeviceStep step = step_of(numbers);
  DeviceUpdate update;
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
  const auto fits = [](const torch::Tensor& x) {
    return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % (4 * x.element_size()) == 0;
  };
  update.aligned = fits(master) && fits(grad) && (!copy || fits(*copy)) &&
                   std::all_of(states.begin(), states.end(), fits);
  const auto with = step.formula == kAdam      ? run<Adam>
                    : step.formula == kLion    ? run<Lion>
                    : step.formula == kAdagrad ? run<Adagrad>
                    : step.formula == kSgd     ? run<Sgd>
                                               : run<SgdMomentum>;
  with(update, master, states);
}

}  // namespace zeroth::testing
