// Checks that every update rule makes of its chunk and of the gradient's factor.
#pragma once

#include <optional>

#include "optim/update_rule.h"

namespace zeroth::optim {

// Throws an InternalError for a chunk or a step that would corrupt the weights.
void check_arguments(const UpdateRule& rule, const UpdateRule::Chunk& chunk,
                     const UpdateStep& step);

// Returns a divisor for the fused kernels, which divide by their grad_scale as they read the
// gradient: 1 / grad_factor, or nullopt for 1. If the reciprocal of the factor is no normal fp32
// number, the factor is applied here in a separate pass over `grad`.
std::optional<torch::Tensor> fold_factor(const torch::Tensor& grad, double grad_factor);

}  // namespace zeroth::optim
