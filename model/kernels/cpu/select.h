// Which of the kernels this process runs, and which products are fast: by base/cpu.h alone.
#pragma once

#include <torch/types.h>

#include "model/kernels/cpu/kernels.h"

namespace zeroth::model::cpu {

const Kernels& kernels();

// Whether LibTorch's products of this dtype run on instructions made for it. Those of 16-bit
// floats are scalar loops elsewhere on x86: there factors are widened to fp32 in tiles.
bool multiplies(torch::ScalarType dtype);

// Whether attention in tiles of fp32 pays: products of small tiles are slow without AVX2.
bool multiplies_tiles();

}  // namespace zeroth::model::cpu
