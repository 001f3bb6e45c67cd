// LibTorch's dtypes for the precisions of the configuration.
#pragma once

#include <cstdint>

#include "configs/config.h"
#include "device/tensor.h"

namespace zeroth::zero {

inline torch::Dtype torch_dtype(configs::Precision precision) {
  switch (precision) {
    case configs::Precision::kBf16:
      return torch::kBFloat16;
    case configs::Precision::kFp16:
      return torch::kHalf;
    default:
      return torch::kFloat;
  }
}

// Returns the dtype in which a run computes.
inline torch::Dtype working_dtype(const configs::Config& config) {
  return torch_dtype(config.precision);
}

// Returns the dtype of gradients in communication between ranks.
inline torch::Dtype wire_dtype(const configs::Config& config) {
  return torch_dtype(config.gradients.communication.value_or(config.precision));
}

// Returns the dtype of gradients until the update. Without a sum over micro-batches they keep the
// dtype of communication.
inline torch::Dtype gradient_dtype(const configs::Config& config) {
  return config.batch.accumulates() ? torch_dtype(config.gradients.accumulation)
                                    : wire_dtype(config);
}

// Returns the bytes of an element.
inline int64_t element_bytes(torch::Dtype dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

}  // namespace zeroth::zero
