// How fast this machine multiplies matrices: the measure beside which a step's speed stands.
#pragma once

#include <torch/types.h>

namespace zeroth::model {

// Floating-point operations per second of the fastest product found: of matrix_product, with the
// threads that it uses now, on `device`, of growing square matrices. Takes at most 50 ms (when
// products of this kind ran before; the very first also sets the library up), a CPU with a single
// product of 256 x 256 above that excepted. Blocks.
double measure_matrix_peak(torch::ScalarType dtype, torch::Device device);

}  // namespace zeroth::model
