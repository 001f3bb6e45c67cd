// LibTorch settings that every library with a Gpu applies when a GPU is selected.
#pragma once

#include <ATen/Context.h>

namespace zeroth::device {

// Makes products of 16-bit factors that are split along their sum (the weight gradients of few
// keys) add the partial sums in fp32.
inline void sum_products_in_fp32() {
  at::globalContext().setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false);
  at::globalContext().setAllowFP16ReductionCuBLAS(/*allow_reduced_precision=*/false);
}

}  // namespace zeroth::device
