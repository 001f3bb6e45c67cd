// Matrix products in tiles of fp32 that are made in the caches, whatever dtype the factors have:
// for dtypes without fast products on this processor (model/kernels/cpu/select.h).
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace zeroth::model {

// Computes out = a b, or out += a b with `add`. a [m, k], b [k, n] and out [m, n] lie on the CPU,
// each in fp32, bf16 or fp16 and with any strides. Sums are fp32, in an order that depends on k
// alone, and are rounded once: the bits are equal for any number of threads. A thread uses at most
// kMaxTiledProductScratch bytes besides its arguments; arguments that have gaps in both dimensions
// are copied. Does not record a graph. Throws an InternalError for sizes and dtypes that do not
// fit.
void tiled_product(const torch::Tensor& out, const torch::Tensor& a, const torch::Tensor& b,
                   bool add);

inline constexpr int64_t kMaxTiledProductScratch = 2304 << 10;

}  // namespace zeroth::model
