// What the configuration calls a precision, as LibTorch calls it.
#pragma once

#include <torch/types.h>

#include "configs/config.h"

namespace zeroth::zero {

torch::Dtype dtype_of(configs::Precision precision);

}  // namespace zeroth::zero
