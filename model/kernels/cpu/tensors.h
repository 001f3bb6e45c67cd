// Converts tensors to the plain memory of kernels.h.
#pragma once

#include <torch/types.h>

#include <initializer_list>

#include "model/kernels/cpu/select.h"

namespace zeroth::model::cpu {

// Calls work(kernels of the dtype, T{}) with T = float, Bf16 or Fp16; returns false for other
// dtypes.
template <typename Work>
bool with_kernels(torch::ScalarType dtype, const Work& work) {
  if (dtype == torch::kFloat32) {
    work(kernels().fp32, float{});
  } else if (dtype == torch::kBFloat16) {
    work(kernels().bf16, Bf16{});
  } else if (dtype == torch::kFloat16) {
    work(kernels().fp16, Fp16{});
  } else {
    return false;
  }
  return true;
}

template <typename T>
T* data(const torch::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

}  // namespace zeroth::model::cpu
