// The matrix products that `linear` and the head use, by the library that is fast on this node.
#pragma once

#include <torch/types.h>

namespace zeroth::model {

// Returns a [m, k] times b [k, n], both of one dtype and with any strides. Does not record a graph.
//
// On the CPU the product is LibTorch's own, oneDNN's, or made in tiles of fp32, to which 16-bit
// factors are widened (model/kernels/tiled_product.h): the fastest one of this processor, or the
// one that ZEROTH_PRODUCT forces (matmul_backends() in base/machine/cpu.h). It depends on the
// processor and the shapes only, so that equal runs stay bit-equal.
torch::Tensor matrix_product(const torch::Tensor& a, const torch::Tensor& b);

// Returns a b + bias, `bias` [n].
torch::Tensor matrix_product_with_bias(const torch::Tensor& bias, const torch::Tensor& a,
                                       const torch::Tensor& b);

// Returns whether LibTorch's own products of this 16-bit dtype and device are slower than those of
// fp32, so that code which multiplies by other operators than these should widen to fp32 first.
bool prefers_fp32(const torch::Tensor& a);

// Returns whether a product of 16-bit factors can accumulate directly in fp32: on a GPU, and when
// widened.
bool accumulates_in_fp32(const torch::Tensor& out, const torch::Tensor& a);

// Compute out = a b and out += a b. `out` [m, n] has the same dtype, or fp32 if
// accumulates_in_fp32() returns true.
void write_matrix_product(torch::Tensor out, const torch::Tensor& a, const torch::Tensor& b);
void add_matrix_product(torch::Tensor out, const torch::Tensor& a, const torch::Tensor& b);

// Returns tensors that are adjacent along `dim` in one storage as the one tensor that they are
// parts of; undefined if they are not adjacent.
torch::Tensor concatenated_view(at::TensorList parts, int64_t dim);

}  // namespace zeroth::model
