#include "optim/device_rule.h"

#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "optim/device_step.h"
#include "optim/rule_checks.h"

namespace zeroth::optim {
namespace {

using torch::Tensor;
using Update = void(const Tensor& master, const Tensor& grad, at::TensorList states,
                    const std::optional<Tensor>& copy, at::IntArrayRef step);

c10::OperatorHandle update_operator() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("zeroth::update_", "");
}

// Of the elements [begin, limit) as many as one call takes, into `taken`; returns their end.
int64_t take_stretches(std::span<const Stretch> stretches, int64_t begin, int64_t limit,
                       kernel::Stretches& taken) {
  constexpr int64_t kOfThread = 4;
  taken = {};
  int64_t end = begin;
  for (const Stretch& stretch : stretches) {
    if (stretch.end <= end) continue;
    const bool full = taken.count == kernel::kStretches || (end - begin) % kOfThread != 0;
    if (full || end == limit) break;
    ZEROTH_CHECK(stretch.begin <= end, "elements from {} to {} lie in no stretch", end,
                 stretch.begin);
    end = std::min(stretch.end, limit);
    if (!stretch.decays) taken.undecayed |= uint32_t{1} << taken.count;
    taken.ends[taken.count++] = end - begin;
  }
  ZEROTH_CHECK(end > begin, "elements from {} on lie in no stretch", begin);
  return end;
}

struct Part {
  int64_t begin, end;
};

// One call of the operator.
void call(const UpdateRule::Tile& tile, const Part& elements, const kernel::Words& words) {
  static const auto op = update_operator().typed<Update>();
  const auto part = [&](const Tensor& x) {
    return x.narrow(0, elements.begin, elements.end - elements.begin);
  };
  std::vector<Tensor> states;
  for (const Tensor& state : tile.states) states.push_back(part(state));
  const auto copy = tile.copy.defined() ? std::optional<Tensor>(part(tile.copy)) : std::nullopt;
  op.call(part(tile.master), part(tile.grad), states, copy, words);
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

void DeviceRule::apply(const Tile& tile, const UpdateStep& step) const {
  const Stretch whole{0, tile.master.numel()};
  apply_stretches(tile, step, {&whole, 1});
}

void DeviceRule::apply_stretches(const Tile& tile, const UpdateStep& step,
                                 std::span<const Stretch> stretches) const {
  check_arguments(*this, tile, step);
  ZEROTH_CHECK(tile.first_element >= 0, "a tile from element {}", tile.first_element);
  UpdateStep undecayed = step;
  undecayed.weight_decay = 0;
  kernel::DeviceStep device_step;
  device_step.constants = kernel::constants_of(config(), step);
  device_step.undecayed = kernel::constants_of(config(), undecayed);
  device_step.formula = kernel::formula_of(config());
  // One call, but for each run of numbers where these are read.
  const int64_t numel = tile.master.numel();
  for (int64_t begin = 0, end = 0; begin < numel; begin = end) {
    int64_t limit = numel;
    if (config().bf16_masters) {
      const int64_t before = tile.first_element;
      const NumberedRun part = numbered_run(tile.numbers, before + begin, before + numel);
      limit = part.end - before;
      device_step.numbers = part.numbers;
      for (size_t i = 0; i < kernel::kArrays; ++i) {
        device_step.keys[i] = kernel::rounding_key(step, i, part.numbers.first);
      }
    }
    end = take_stretches(stretches, begin, limit, device_step.stretches);
    call(tile, {begin, end}, kernel::words_of(device_step));
  }
}

}  // namespace zeroth::optim
