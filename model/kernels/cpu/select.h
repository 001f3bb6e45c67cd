// Selects the kernels that this process runs and the products that are fast, by base/machine/cpu.h
// alone, and passes tensors to the kernels.
#pragma once

#include <torch/types.h>

#include "model/kernels/cpu/kernels.h"

namespace zeroth::model::cpu {

const CpuKernels& kernels();

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

// Returns whether there are kernels for this dtype: fp32, bf16 or fp16.
inline bool has_kernels(torch::ScalarType dtype) {
  return with_kernels(dtype, [](const auto&, auto) {});
}

template <typename T>
T* data(const torch::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// Returns whether LibTorch multiplies this dtype (base/machine/cpu.h). If its products of 16-bit
// floats are scalar loops, or slower than those of fp32, factors are widened to fp32 in tiles
// instead.
bool has_fast_products(torch::ScalarType dtype);

// Returns whether attention in tiles of fp32 pays: products of small tiles are slow without AVX2.
bool has_fast_tile_products();

}  // namespace zeroth::model::cpu
