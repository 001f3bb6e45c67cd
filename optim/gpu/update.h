// An update's kernel on a GPU. Arguments are plain pointers and sizes: this header includes no
// torch; update_op.cpp checks what is passed here.
#pragma once

#include <cuda_runtime.h>

#include "optim/gpu/device_update.h"

namespace zeroth::optim::kernel {

// Queues the update on `stream`.
void launch_update(Formula formula, const StateFormat& state_format, const DeviceUpdate& update,
                   cudaStream_t stream);

}  // namespace zeroth::optim::kernel
