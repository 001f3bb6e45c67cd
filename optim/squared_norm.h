// Norms of gradients.
#pragma once

#include <vector>

#include "device/tensor.h"

namespace zeroth::optim {

// Returns for each tensor the sum of its squares: [tensors], fp64, on `device`. The tensors are
// contiguous, fp32, bf16 or fp16, and all on one device, which may be the CPU if `device` is a GPU.
// The order of addition is the same everywhere (optim/cpu/cpu_kernels.h), so that a tensor gives
// the same bits on the CPU, at any instruction set, and on a GPU, where two kernels process all of
// them at once.
torch::Tensor squared_norms(const std::vector<torch::Tensor>& tensors, torch::Device device);

}  // namespace zeroth::optim
