// What an update's kernel on a GPU is told, and how that passes through torch's dispatcher. Plain
// types only; the program and the GPU library are built of one tree.
#pragma once

#include <array>
#include <cstring>
#include <type_traits>

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

struct DeviceStep {
  Constants constants = {};
  Constants undecayed = {};
  Stretches stretches = {};
  Formula formula = kAdam;
  Numbers numbers = {};    // of the elements, alike in their upper halves
  Key keys[kArrays] = {};  // like `numbers` read for what rests in bf16
};

static_assert(std::is_trivially_copyable_v<DeviceStep>);

// The operator's `step`.
using Words = std::array<int64_t, (sizeof(DeviceStep) + 7) / 8>;

inline Words words_of(const DeviceStep& step) {
  Words words = {};
  std::memcpy(words.data(), &step, sizeof(step));
  return words;
}
inline DeviceStep step_of(const Words& words) {
  DeviceStep step;
  std::memcpy(static_cast<void*>(&step), words.data(), sizeof(step));
  return step;
}

}  // namespace zeroth::optim::kernel
