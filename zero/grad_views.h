// The gradients of a unit's parameters as views of one flat buffer.
#pragma once

#include <torch/types.h>

#include "zero/unit.h"

namespace zeroth::zero {

// mutable_grad() of every parameter becomes its slot of `flat` [layout.numel()], any floating
// dtype.
void open_grad_views(const Unit& unit, const torch::Tensor& flat);
void close_grad_views(const Unit& unit);

}  // namespace zeroth::zero
