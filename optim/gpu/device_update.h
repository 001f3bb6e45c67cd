// The arguments of an update's kernel on a GPU.
#pragma once

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

// A DeviceUpdate describes arrays of `count` elements on the device, like optim::UpdateRule::Chunk.
struct DeviceUpdate {
  Constants constants = {};
  Constants undecayed = {};
  DecayRanges decay_ranges = {};
  ElementOffsets offsets = {};
  RoundingKey keys[kNumArrays] = {};
  int64_t count = 0;
  void* master = nullptr;
  void* states[2] = {};
  const void* grad = nullptr;
  Format grad_format = kFp32;
  void* copy = nullptr;
  Format copy_format = kBf16;
  bool aligned = false;  // four elements of each array can be accessed at once
};

// A StateFormat selects what is stored in bf16 instead of fp32: nothing, the master, or master and
// states.
struct StateFormat {
  bool bf16_master = false;
  bool bf16_states = false;
};

}  // namespace zeroth::optim::kernel
