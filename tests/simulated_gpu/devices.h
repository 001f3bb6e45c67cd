// The simulated GPUs of the process, which share its timeline and its addresses.
#pragma once

#include <c10/core/Device.h>

namespace zeroth::simulated {

constexpr int kMaxDevices = 8;

// ZEROTH_SIMULATED_GPUS; 1 without it.
int device_count();

// Of this thread, which begins with GPU 0 as every thread does.
c10::Device current_device();
// `device`, or the current one where it has no index.
c10::Device with_index(c10::Device device);

}  // namespace zeroth::simulated
