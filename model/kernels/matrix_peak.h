// Measures how fast this node multiplies matrices: the reference for the speed of a step.
#pragma once

#include <torch/types.h>

namespace zeroth::model {

// Returns floating-point operations per second of the fastest product found: of matrix_product(),
// with the threads that it uses now, on `device`, of growing square matrices. A CPU's products are
// timed by the processor's clock, so that other work on the node does not slow down the result.
// Takes at most 50 ms of that time if products of this kind ran before (the very first also
// initializes the library); a CPU for which two products of 256 x 256 exceed that takes longer.
// Blocks.
double measure_matrix_peak(torch::ScalarType dtype, torch::Device device);

}  // namespace zeroth::model
