// The matrix products behind `linear` and the head, by the library that is fast on this machine.
#pragma once

#include <torch/types.h>

namespace zeroth::model {

// a [m, k] times b [k, n], both of one dtype and with any strides. Does not record a graph.
//
// On the CPU LibTorch's own fp32 product is MKL's, which keeps to AVX2 on processors of other
// makers than Intel even where they have AVX-512: there oneDNN's product takes its place and does
// the same in half the time. Which of the two runs depends on the processor and the shapes only, so
// that equal runs stay bit-equal.
torch::Tensor matrix_product(const torch::Tensor& a, const torch::Tensor& b);

// a b + bias, `bias` [n].
torch::Tensor matrix_product_plus(const torch::Tensor& bias, const torch::Tensor& a,
                                  const torch::Tensor& b);

// Whether a product of 16-bit factors can be summed straight into fp32, as a GPU's can.
bool adds_wider(const torch::Tensor& out, const torch::Tensor& a);

// out = a b and out += a b, `out` [m, n] of the same dtype, or fp32 where adds_wider says so.
void write_matrix_product(torch::Tensor out, const torch::Tensor& a, const torch::Tensor& b);
void add_matrix_product(torch::Tensor out, const torch::Tensor& a, const torch::Tensor& b);

}  // namespace zeroth::model
