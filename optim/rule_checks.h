// What every update rule asks of its tile and of the gradient's factor.
#pragma once

#include <optional>

#include "optim/update_rule.h"

namespace zeroth::optim {

// Throws an InternalError for a tile or a step that would spoil the weights.
void check_arguments(const UpdateRule& rule, const UpdateRule::Chunk& chunk,
                     const UpdateStep& step);

// A divisor for the fused kernels, which divide by their grad_scale as they read the gradient:
// 1 / grad_factor, or none for 1. A factor whose reciprocal is no normal fp32 number takes a pass
// of its own over `grad` here.
std::optional<torch::Tensor> fold_factor(const torch::Tensor& grad, double grad_factor);

}  // namespace zeroth::optim
