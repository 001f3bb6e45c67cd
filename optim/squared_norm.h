// The norm of gradients.
#pragma once

#include <torch/types.h>

#include <vector>

namespace zeroth::optim {

// Sum of the squares of the tensors, contiguous, of any floating dtype and all on one device, as an
// fp64 scalar on `device`. On a GPU one pass of a kernel of ours over all of them at once, in
// an order that the sizes alone decide; without that kernel, LibTorch's operators for each.
torch::Tensor squared_norm(const std::vector<torch::Tensor>& tensors, torch::Device device);

}  // namespace zeroth::optim
