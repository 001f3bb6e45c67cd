// The arguments of an update's kernel on a GPU.
#pragma once

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

// Arrays of `count` elements on the device, as optim::UpdateRule::Range.
struct DeviceUpdate {
  Constants constants = {};
  uint32_t number = 0;
  Key keys[kArrays] = {};
  int64_t count = 0;
  void* master = nullptr;
  void* states[2] = {};
  const void* grad = nullptr;
  Format grad_format = kFp32;
  void* copy = nullptr;
  Format copy_format = kBf16;
  bool aligned = false;  // four elements of each array at once
};

}  // namespace zeroth::optim::kernel
