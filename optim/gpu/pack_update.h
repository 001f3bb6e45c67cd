// Converts the arguments of the operator zeroth::update_ (optim/device_rule.h) to those of its
// kernel. This header uses no CUDA: a test runs the same code on the CPU.
#pragma once

#include <torch/types.h>

#include <optional>

#include "optim/gpu/device_update.h"

namespace zeroth::optim::kernel {

struct PackedUpdate {
  Formula formula = kAdam;
  StateFormat state_format;
  DeviceUpdate update;  // points to memory that the tensors own
};

// Returns the kernel's arguments. The caller checks the chunk; `words` are those of a DeviceStep.
// Throws an InternalError when words or states do not fit the formula.
PackedUpdate pack_update(const torch::Tensor& master, const torch::Tensor& grad,
                         at::TensorList states, const std::optional<torch::Tensor>& copy,
                         at::IntArrayRef words);

}  // namespace zeroth::optim::kernel
