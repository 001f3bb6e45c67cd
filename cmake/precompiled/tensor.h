// Precompiled for sources that see LibTorch's tensors and few of its operators.
#pragma once

#include "cmake/precompiled/std.h"
#include "device/tensor.h"
