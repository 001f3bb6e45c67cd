#include "model/blocks/quantized_product.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "model/kernels/matrix_product.h"

namespace zeroth::model {

using torch::Tensor;

int64_t QuantizedProduct::tile_size(int64_t size, int64_t width) const {
  if (!is_tiled()) return size;
  return std::min(size, std::max<int64_t>(kMaxTile / width / kNf4Block, 1) * kNf4Block);
}

void QuantizedProduct::dequantize(const Nf4Codes& codes, const Tensor& out) const {
  const torch::Dtype rounded = dtype_.value_or(out.scalar_type());
  if (rounded == out.scalar_type()) return dequantize_nf4(codes.codes, codes.scales, out);
  const Tensor first = at::empty(out.sizes(), out.options().dtype(rounded));
  dequantize_nf4(codes.codes, codes.scales, first);
  out.copy_(first);
}

Tensor QuantizedProduct::forward(const Tensor& x, const Tensor& bias, int64_t out) const {
  const int64_t step = tile_size(out, x.size(1));
  if (step == out) {
    const Tensor whole = at::empty({out, x.size(1)}, x.options());
    dequantize(whole);
    return matrix_product(x, whole.t(), bias);
  }
  const Tensor y = at::empty({x.size(0), out}, x.options());
  for (int64_t begin = 0; begin < out; begin += step) {
    const int64_t count = std::min(step, out - begin);
    const Tensor tile = at::empty({count, x.size(1)}, x.options());
    dequantize(weight_.rows(begin, count), tile);
    const Tensor part = y.narrow(1, begin, count);
    if (bias.defined()) {  // added before a sum in 16 bits is rounded
      part.copy_(matrix_product(x, tile.t(), bias.narrow(0, begin, count)));
    } else {
      write_matrix_product(part, x, tile.t());
    }
  }
  return y;
}

Tensor QuantizedProduct::input_gradient(const Tensor& dy, int64_t in, const Tensor& sum) const {
  const Tensor dx = sum.defined() ? sum : at::empty({dy.size(0), in}, dy.options());
  const int64_t step = tile_size(in, dy.size(1));
  for (int64_t begin = 0; begin < in; begin += step) {  // columns, each of which has all of its sum
    const int64_t count = std::min(step, in - begin);
    const Tensor tile = at::empty({dy.size(1), count}, dy.options());
    dequantize(is_tiled() ? weight_.columns(begin, count) : weight_, tile);
    write_matrix_product(dx.narrow(1, begin, count), dy, tile, /*add=*/sum.defined());
  }
  return dx;
}

}  // namespace zeroth::model
