// Which of the kernels this process runs, and which products are fast: by base/cpu.h alone.
#pragma once

#include <torch/types.h>

#include "model/kernels/cpu/kernels.h"

namespace zeroth::model::cpu {

const Kernels& kernels();

// Whether LibTorch multiplies this dtype (base/cpu.h). Where its products of 16-bit floats are
// scalar loops, or slower than those of fp32, factors are widened to fp32 in tiles instead.
bool multiplies(torch::ScalarType dtype);

// Whether attention in tiles of fp32 pays: products of small tiles are slow without AVX2.
bool multiplies_tiles();

}  // namespace zeroth::model::cpu
