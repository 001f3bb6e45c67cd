// What the configuration calls a precision, as LibTorch calls it.
#pragma once

#include <torch/types.h>

#include "configs/config.h"

namespace zeroth::zero {

inline torch::Dtype dtype_of(configs::Precision precision) {
  switch (precision) {
    case configs::Precision::kBf16:
      return torch::kBFloat16;
    case configs::Precision::kFp16:
      return torch::kHalf;
    default:
      return torch::kFloat;
  }
}

}  // namespace zeroth::zero
