// Work on tensors of the simulated GPUs.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Stream.h>

#include <functional>

#include "tests/simulated_gpu/timeline.h"

namespace zeroth::simulated {

StreamNumber number_of(const c10::Stream& stream);
// Of the current device.
StreamNumber current_stream();

// Behind what the current stream holds.
void queue(std::function<void()> work);
void finish_current_stream();

// An operator of the CPU, for tensors of the device: as everything that has no kernel of its own.
void run_queued(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The same memory as a tensor of the CPU; a tensor of the host itself. Keeps no memory of the
// device alive, as a queued kernel does not. Throws for a tensor of another GPU than the current
// one, whose streams the work is not on.
at::Tensor on_cpu(const at::Tensor& x);
// `other`, a number without a dtype of its own if `x` is one.
at::Tensor as_number_of(const at::Tensor& x, at::Tensor other);

}  // namespace zeroth::simulated
