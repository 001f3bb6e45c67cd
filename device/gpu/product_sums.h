// What every library that is a Gpu sets in LibTorch when a GPU is selected.
#pragma once

#include <ATen/Context.h>

namespace zeroth::device {

// Products of 16-bit factors that are cut along their sum (the weight gradients of few keys) add
// its parts in fp32.
inline void sum_products_in_fp32() {
  at::globalContext().setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false);
  at::globalContext().setAllowFP16ReductionCuBLAS(/*allow_reduced_precision=*/false);
}

}  // namespace zeroth::device
