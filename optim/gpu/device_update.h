// The arguments of an update's kernel on a GPU.
#pragma once

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

// Arrays of `count` elements on the device, as optim::UpdateRule::Chunk.
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
  bool aligned = false;  // four elements of each array at once
};

// Master and states in fp32, or the master, or both in bf16.
struct StateFormat {
  bool bf16_master = false;
  bool bf16_states = false;
};

}  // namespace zeroth::optim::kernel
