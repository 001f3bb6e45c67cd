// Products with weights in NF4.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "device/tensor.h"
#include "model/kernels/nf4.h"

namespace zeroth::model {

// A QuantizedProduct is x W^T, where W [out, in] is in NF4. On the CPU one tile of W at a time is
// in the dtype of x: whole rows or columns, as many as kMaxTile elements are, but 64 at least. On a
// GPU, or if `in` is no multiple of 64, it is all of W.
class QuantizedProduct {
 public:
  static constexpr int64_t kMaxTile = int64_t{1} << 20;

  // With `dtype`, values are rounded to it first.
  QuantizedProduct(Nf4Codes weight, std::optional<torch::Dtype> dtype)
      : weight_(std::move(weight)), dtype_(dtype) {}

  // Returns x W^T + bias, [rows, out]; `bias` may be undefined.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& bias, int64_t out) const;
  // Returns dy W, [rows, in], or with `sum`, adds it to that and returns it.
  torch::Tensor input_gradient(const torch::Tensor& dy, int64_t in,
                               const torch::Tensor& sum = {}) const;

  // Writes W.
  void dequantize(const torch::Tensor& out) const { dequantize(weight_, out); }

 private:
  bool is_tiled() const { return weight_.codes.is_cpu() && weight_.codes.dim() == 2; }
  // Returns how many rows or columns of `width` elements a tile has, of `size` in all.
  int64_t tile_size(int64_t size, int64_t width) const;
  void dequantize(const Nf4Codes& codes, const torch::Tensor& out) const;

  Nf4Codes weight_;
  std::optional<torch::Dtype> dtype_;
};

}  // namespace zeroth::model
