// The step's arguments of an update's kernel on a GPU, and how they pass through torch's
// dispatcher. Plain types only; the program and the GPU library are built from one tree.
#pragma once

#include <array>
#include <cstring>
#include <type_traits>

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

struct DeviceStep {
  Constants constants = {};
  Constants undecayed = {};
  DecayRanges decay_ranges = {};
  Formula formula = kAdam;
  ElementOffsets offsets = {};        // of the elements, equal in their upper halves
  RoundingKey keys[kNumArrays] = {};  // like `offsets`, read for bf16 results alone
};

static_assert(std::is_trivially_copyable_v<DeviceStep>);

// The operator's argument `step`.
using StepWords = std::array<int64_t, (sizeof(DeviceStep) + 7) / 8>;

inline StepWords pack_words(const DeviceStep& step) {
  StepWords words = {};
  std::memcpy(words.data(), &step, sizeof(step));
  return words;
}
inline DeviceStep unpack_step(const StepWords& words) {
  DeviceStep step;
  std::memcpy(static_cast<void*>(&step), words.data(), sizeof(step));
  return step;
}

}  // namespace zeroth::optim::kernel
