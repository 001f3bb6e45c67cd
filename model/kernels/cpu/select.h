// Selects the kernels that this process runs, by base/machine/cpu.h alone, and passes tensors to
// them.
#pragma once

#include "device/tensor.h"
#include "model/kernels/cpu/kernels.h"

namespace zeroth::model::cpu {

const CpuKernels& select_kernels();

// Calls work(kernels of the dtype, T{}) with T = float, Bf16 or Fp16; returns false for other
// dtypes.
template <typename Work>
bool with_kernels(torch::ScalarType dtype, const Work& work) {
  if (dtype == torch::kFloat) {
    work(select_kernels().fp32, float{});
  } else if (dtype == torch::kBFloat16) {
    work(select_kernels().bf16, Bf16{});
  } else if (dtype == torch::kHalf) {
    work(select_kernels().fp16, Fp16{});
  } else {
    return false;
  }
  return true;
}

// Returns whether there are kernels for this dtype: fp32, bf16 or fp16.
inline bool has_kernels(torch::ScalarType dtype) {
  return with_kernels(dtype, [](const auto&, auto) {});
}

template <typename T>
T* data(const torch::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

}  // namespace zeroth::model::cpu
