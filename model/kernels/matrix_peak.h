// How fast this machine multiplies matrices: the measure beside which a step's speed stands.
#pragma once

#include <torch/types.h>

namespace zeroth::model {

// Floating-point operations per second of the fastest product found: of matrix_product, with the
// threads that it uses now, on `device`, of growing square matrices. A CPU's products are timed by
// the processor's clock, so that other work on the machine does not make it slower. Takes at most
// 50 ms of that time (when products of this kind ran before; the very first also sets the library
// up), a CPU with two products of 256 x 256 above that excepted. Blocks.
double measure_matrix_peak(torch::ScalarType dtype, torch::Device device);

}  // namespace zeroth::model
