// Weights in NF4, the 4-bit floats of QLoRA (arXiv 2305.14314), with the codes and scales that
// bitsandbytes computes. 64 weights, in the order of the flattened weight, share the maximum of
// their magnitudes. With double quantization these maxima, less their mean, are stored in 8 bits
// (base/dynamic_map.h), and 256 of them share a maximum.
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.h"
#include "model/kernels/nf4_values.h"

namespace zeroth::model {

// A BlockPlace locates the blocks of a slice of a weight, row by row, among those of the full one.
struct BlockPlace {
  int64_t first = 0;     // index of the slice's first block in the full weight
  int64_t per_row = 1;   // blocks in a row of the slice
  int64_t row_step = 1;  // blocks in a row of the full weight

  int64_t in_full(int64_t block) const {
    return first + block / per_row * row_step + block % per_row;
  }
};

// Nf4Scales are the scales of a weight, or of a slice of one, as bytes: a unit of uint8 holds them.
struct Nf4Scales {
  // uint8 [..]: the bytes of an fp32 maximum for each block; with double quantization its code.
  torch::Tensor absmax;
  // With double quantization uint8 [4 * (n + 1)]: the bytes of the fp32 maxima of the n groups of
  // the full weight, and of the mean. Otherwise undefined.
  torch::Tensor nested_absmax = {};
  BlockPlace place = {};  // read with double quantization

  bool is_double() const { return nested_absmax.defined(); }
};

// Nf4Codes are the codes and scales of a weight, or of a slice of one. The codes of [out, in], of
// which two are in a byte, are uint8 [out, in / 2] if `in` is a multiple of 64, and the bytes of
// scales [out, ..].
struct Nf4Codes {
  torch::Tensor codes;
  Nf4Scales scales;

  // Return rows, or columns, [begin, begin + count) of 2-D codes, without gaps. Columns begin and
  // end at multiples of 64, and are copied.
  Nf4Codes rows(int64_t begin, int64_t count) const;
  Nf4Codes columns(int64_t begin, int64_t count) const;
};

// Writes the weights into `out`, [out, in] or any other shape without gaps, in fp32, bf16 or fp16:
// code times scale in fp32, rounded once. `codes`: uint8 [(numel + 1) / 2], of two in a byte the
// first one in the upper half. Does not record a graph.
void dequantize_nf4(const torch::Tensor& codes, const Nf4Scales& scales, const torch::Tensor& out);

// Computes codes uint8 [(n + 1) / 2] and maxima fp32 [(n + 63) / 64] of `values` fp32 [n]. All are
// 1-D, without gaps, on the CPU. A last byte with one code is filled with that of 0.
void quantize_nf4(const torch::Tensor& values, const torch::Tensor& codes,
                  const torch::Tensor& absmax);

// Double quantization of the maxima of a full weight.
struct NestedAbsmax {
  torch::Tensor codes;   // uint8 [n]
  torch::Tensor nested;  // fp32 [ceil(n / 256) + 1], the mean last
};

// Quantizes `absmax` fp32 [n], n > 0, on the CPU. The mean is exact to fp32, so that it does not
// depend on the order of the sum; that of bitsandbytes may differ in the last bit.
NestedAbsmax quantize_absmax(const torch::Tensor& absmax);

namespace formula {
// The reference, in passes of ATen, for any device.
decltype(model::dequantize_nf4) dequantize_nf4;
}  // namespace formula

}  // namespace zeroth::model
