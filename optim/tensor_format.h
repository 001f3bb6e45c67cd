// Converts a tensor's dtype to the Format of the kernels on the CPU and on a GPU.
#pragma once

#include "base/error.h"
#include "device/tensor.h"
#include "optim/update_constants.h"

namespace zeroth::optim::kernel {

inline Format to_format(torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kFloat:
      return kFp32;
    case torch::kBFloat16:
      return kBf16;
    case torch::kHalf:
      return kFp16;
    default:
      throw InternalError(fmt::format("no kernel supports a tensor of {}", c10::toString(dtype)));
  }
}

}  // namespace zeroth::optim::kernel
