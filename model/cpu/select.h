// Which of the kernels this processor runs.
#pragma once

#include "model/cpu/kernels.h"

namespace zeroth::model::cpu {

// Null where there are none for it.
const Kernels* kernels();

// Whether attention in tiles pays: products of small fp32 (bf16) tiles need AVX-512 (and its bf16
// instructions) to be faster than what LibTorch does.
bool multiplies_tiles(bool bf16);

}  // namespace zeroth::model::cpu
