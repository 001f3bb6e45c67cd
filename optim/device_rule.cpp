#include "optim/device_rule.h"

#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "optim/device_step.h"
#include "optim/range_checks.h"

namespace zeroth::optim {
namespace {

using torch::Tensor;
using Update = void(const Tensor& master, const Tensor& grad, at::TensorList states,
                    const std::optional<Tensor>& copy, at::IntArrayRef step);

c10::OperatorHandle update_operator() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("zeroth::update_", "");
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(zeroth, library) {
  // `step` holds the words of a kernel::DeviceStep.
  library.def(
      "update_(Tensor(a!) master, Tensor grad, Tensor(b!)[] states, Tensor(c!)? copy, int[] step) "
      "-> ()");
}

bool DeviceRule::runs_on(torch::Device device) {
  return device.is_cuda() && update_operator().hasKernelForDispatchKey(c10::DispatchKey::CUDA);
}

void DeviceRule::apply(const Range& range, const Step& step) const {
  static const auto op = update_operator().typed<Update>();
  check_arguments(*this, range, step);
  ZEROTH_CHECK(range.first_element >= 0, "a range from element {}", range.first_element);
  kernel::DeviceStep device_step;
  device_step.constants = kernel::constants_of(config(), step);
  device_step.formula = kernel::formula_of(config());
  // One call, but where the lower half of the elements' numbers wraps around.
  constexpr int64_t kHalf = int64_t{1} << 32;
  const int64_t numel = range.master.numel();
  for (int64_t begin = 0, end = 0; begin < numel; begin = end) {
    const int64_t element = range.first_element + begin;
    end = std::min(numel, (element / kHalf + 1) * kHalf - range.first_element);
    device_step.number = static_cast<uint32_t>(element);
    for (size_t i = 0; i < kernel::kArrays; ++i) {
      device_step.keys[i] = kernel::rounding_key(step, i, element);
    }
    const auto part = [&](const Tensor& x) { return x.narrow(0, begin, end - begin); };
    std::vector<Tensor> states;
    for (const Tensor& state : range.states) states.push_back(part(state));
    const auto copy = range.copy.defined() ? std::optional<Tensor>(part(range.copy)) : std::nullopt;
    op.call(part(range.master), part(range.grad), states, copy, kernel::words_of(device_step));
  }
}

}  // namespace zeroth::optim
