// The operator zeroth::update_ (optim/kernel_rules.h) for a test on the CPU: what the threads of a
// GPU's kernel do, one after the other, with the plain lanes of the host.
#pragma once

#include <torch/types.h>

#include <optional>

namespace zeroth::testing {

// As update_cuda of optim/gpu/update_ops.cpp.
void update_on_cpu(const torch::Tensor& master, const torch::Tensor& grad, at::TensorList states,
                   const std::optional<torch::Tensor>& copy, at::IntArrayRef step,
                   const std::optional<torch::Tensor>& tables = std::nullopt);

}  // namespace zeroth::testing
