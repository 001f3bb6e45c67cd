// The matrix products that `linear` and the head use, by the library that is fast on this node.
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.h"

namespace zeroth::model {

// Returns a [m, k] times b [k, n], both of one dtype and with any strides, plus `bias` [n] if it is
// defined. Does not record a graph.
//
// On the CPU the product is LibTorch's own, oneDNN's, or made in tiles of fp32, to which 16-bit
// factors are widened (tiled_product()): the fastest one of this processor, or the one that
// ZEROTH_PRODUCT forces (matmul_backends() in base/machine/cpu.h). It depends on the processor and
// the shapes only, so that equal runs stay bit-equal.
torch::Tensor matrix_product(const torch::Tensor& a, const torch::Tensor& b,
                             const torch::Tensor& bias = {});

// Returns whether LibTorch's own products of this 16-bit dtype and device are scalar loops, or
// slower than those of fp32 (base/machine/cpu.h), so that code which multiplies by other operators
// than these should widen to fp32 first.
bool prefers_fp32(const torch::Tensor& a);

// Returns whether a product of 16-bit factors can accumulate directly in fp32: on a GPU, and when
// widened.
bool accumulates_in_fp32(const torch::Tensor& out, const torch::Tensor& a);

// Computes out = a b, or out += a b with `add`. `out` [m, n] has the same dtype, or fp32 if
// accumulates_in_fp32() returns true.
void write_matrix_product(torch::Tensor out, const torch::Tensor& a, const torch::Tensor& b,
                          bool add = false);

// Returns tensors that are adjacent along `dim` in one storage as the one tensor that they are
// parts of; undefined if they are not adjacent.
torch::Tensor concatenated_view(at::TensorList parts, int64_t dim);

// Matrix products in tiles of fp32 that are made in the caches, whatever dtype the factors have,
// for dtypes without fast products on this processor (tiled_product.cpp).
//
// Computes out = a b, or out += a b with `add`. a [m, k], b [k, n] and out [m, n] lie on the CPU,
// each in fp32, bf16 or fp16 and with any strides. Sums are fp32, in an order that depends on k
// alone, and are rounded once: the bits are equal for any number of threads. A thread uses at most
// kMaxTiledProductScratch bytes besides its arguments; arguments that have gaps in both dimensions
// are copied. Does not record a graph. Throws an InternalError for sizes and dtypes that do not
// fit.
void tiled_product(const torch::Tensor& out, const torch::Tensor& a, const torch::Tensor& b,
                   bool add);

inline constexpr int64_t kMaxTiledProductScratch = 2304 << 10;

// Products of groups of rows with a matrix of each group's own: of tokens with their experts
// (grouped_product.cpp).
//
// RowGroups divides rows into neighboring groups, one for each of the matrices.
struct RowGroups {
  std::vector<int64_t> ends;  // index behind each group's last row
  torch::Tensor device_ends;  // the same, int32 on a GPU; undefined on the CPU

  int64_t begin(size_t group) const { return group == 0 ? 0 : ends[group - 1]; }
  int64_t rows(size_t group) const { return ends[group] - begin(group); }
};

// Of a multiple of so many rows groups have few sizes. oneDNN compiles a product for each size that
// it meets, which takes as long as a small product itself.
inline constexpr int64_t kGroupAlignment = 16;

// Returns the groups that have so many rows each.
RowGroups make_row_groups(const std::vector<int64_t>& counts, torch::Device device);

// Returns a [rows, k] times the matrices [groups, k, n], each group's rows with its own, plus the
// group's row of `bias` [groups, n] if that is defined. Does not record a graph. On a GPU products
// of bf16 are one.
torch::Tensor grouped_product(const torch::Tensor& a, const torch::Tensor& matrices,
                              const RowGroups& groups, const torch::Tensor& bias = {});

// Computes out [groups, m, n] = a^T b, or += with `add`, over each group's rows of a [rows, m] and
// b [rows, n]; a group without rows has a product of zeros.
void write_grouped_wgrad(const torch::Tensor& out, const torch::Tensor& a, const torch::Tensor& b,
                         const RowGroups& groups, bool add);

// Measures how fast this node multiplies matrices (matrix_peak.cpp), the reference for the speed of
// a step.
//
// Returns floating-point operations per second of the fastest product found: of matrix_product(),
// with the threads that it uses now, on `device`, of growing square matrices. A CPU's products are
// timed by the processor's clock, so that other work on the node does not slow down the result.
// Takes at most 50 ms of that time if products of this kind ran before (the very first also
// initializes the library); a CPU for which two products of 256 x 256 exceed that takes longer.
// Blocks.
double measure_matrix_peak(torch::ScalarType dtype, torch::Device device);

}  // namespace zeroth::model
