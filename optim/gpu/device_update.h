// The arguments of an update's kernel on a GPU, and how those of a step pass through torch's
// dispatcher. Plain types only; the program and the GPU library are built from one tree.
#pragma once

#include <array>
#include <type_traits>

#include "optim/coded_states.h"
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

// The argument `step` of the operator zeroth::update_ (optim/kernel_rules.h).
using StepWords = std::array<int64_t, (sizeof(DeviceStep) + 7) / 8>;

// A DeviceUpdate describes arrays of `count` elements on the device, like optim::UpdateRule::Chunk.
struct DeviceUpdate {
  DeviceStep step = {};
  int64_t count = 0;
  void* master = nullptr;
  void* states[kMaxStates] = {};
  // For kCodedAdam, whose states are codes.
  float* maxima[kMaxStates] = {};
  const CodeTables* tables = nullptr;
  // What is stored in bf16 instead of fp32: nothing, the master, or master and states.
  bool bf16_master = false;
  bool bf16_states = false;
  const void* grad = nullptr;
  Format grad_format = kFp32;
  void* copy = nullptr;
  Format copy_format = kBf16;
  bool aligned = false;  // four elements of each array can be accessed at once
};

}  // namespace zeroth::optim::kernel
