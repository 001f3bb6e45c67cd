// The gradients of a unit's parameters as views of one flat buffer.
#pragma once

#include <torch/types.h>

#include <vector>

#include "zero/unit.h"

namespace zeroth::zero {

// Sets mutable_grad() of every parameter to its slot of `flat` [layout.numel()], any floating
// dtype. With `holds_sum` backward adds to the content. Otherwise the content is unspecified: only
// parameters whose blocks initialize their gradients themselves see it, the others see zeros.
void open_grad_views(const Unit& unit, const torch::Tensor& flat, bool holds_sum);

// Ends what open_grad_views began with the same arguments: afterwards all of `flat` holds the sum,
// with zeros where there is none. Sets `got[slot]` for the parameters that backward gave a
// gradient.
void close_grad_views(const Unit& unit, const torch::Tensor& flat, bool holds_sum,
                      std::vector<bool>& got);

}  // namespace zeroth::zero
