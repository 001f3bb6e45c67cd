// The arguments of the operator zeroth::update_ (optim/device_rule.h) as those of its kernel. Knows
// no CUDA: a test runs the same on the CPU.
#pragma once

#include <torch/types.h>

#include <optional>

#include "optim/gpu/device_update.h"

namespace zeroth::optim::kernel {

struct PackedUpdate {
  Formula formula = kAdam;
  StateFormat state_format;
  DeviceUpdate update;  // of memory that the tensors keep
};

// The tile is checked by the caller; `words` are those of a DeviceStep. Throws InternalError when
// words or states do not fit the formula.
PackedUpdate pack_update(const torch::Tensor& master, const torch::Tensor& grad,
                         at::TensorList states, const std::optional<torch::Tensor>& copy,
                         at::IntArrayRef words);

}  // namespace zeroth::optim::kernel
