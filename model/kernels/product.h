// The matrix products behind `linear` and the head, by the library that is fast on this machine.
#pragma once

#include <torch/types.h>

namespace zeroth::model {

// a [m, k] times b [k, n], both of one dtype and with any strides. Does not record a graph.
//
// On the CPU LibTorch's own fp32 product is MKL's, which keeps to AVX2 on processors of other
// makers than Intel even where they have AVX-512: there oneDNN's product takes its place and does
// the same in half the time (with AVX2 alone in 0.85 to 1 of it). Factors in a 16-bit format that
// the processor has no instructions for are widened to fp32 (model/kernels/tiled_product.h). What
// runs depends on the processor (base/cpu.h) and the shapes only, so that equal runs stay
// bit-equal.
torch::Tensor matrix_product(const torch::Tensor& a, const torch::Tensor& b);

// a b + bias, `bias` [n].
torch::Tensor matrix_product_plus(const torch::Tensor& bias, const torch::Tensor& a,
                                  const torch::Tensor& b);

// Whether LibTorch's own products of this dtype and device are slow loops, so that what multiplies
// by other operators than these should widen to fp32 first.
bool widens(const torch::Tensor& a);

// Whether a product of 16-bit factors can be summed straight into fp32: a GPU's, and a widened one.
bool adds_wider(const torch::Tensor& out, const torch::Tensor& a);

// out = a b and out += a b, `out` [m, n] of the same dtype, or fp32 where adds_wider says so.
void write_matrix_product(torch::Tensor out, const torch::Tensor& a, const torch::Tensor& b);
void add_matrix_product(torch::Tensor out, const torch::Tensor& a, const torch::Tensor& b);

}  // namespace zeroth::model
