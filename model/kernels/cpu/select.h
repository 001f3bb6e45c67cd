// Selects the kernels that this process runs and the products that are fast, by base/machine/cpu.h
// alone.
#pragma once

#include <torch/types.h>

#include "model/kernels/cpu/kernels.h"

namespace zeroth::model::cpu {

const CpuKernels& kernels();

// Returns whether LibTorch multiplies this dtype (base/machine/cpu.h). If its products of 16-bit
// floats are scalar loops, or slower than those of fp32, factors are widened to fp32 in tiles
// instead.
bool has_fast_products(torch::ScalarType dtype);

// Returns whether attention in tiles of fp32 pays: products of small tiles are slow without AVX2.
bool has_fast_tile_products();

}  // namespace zeroth::model::cpu
