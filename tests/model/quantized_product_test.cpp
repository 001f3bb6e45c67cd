#include "model/blocks/quantized_product.h"

#include <doctest/doctest.h>

#include <tuple>

#include "model/kernels/matrix_product.h"
#include "tests/model/materialize.h"

namespace zeroth::model::quantized_product_test {
namespace {

using torch::Tensor;

// A weight [out, in] in NF4 from random numbers, as if it were a slice of columns of one with two
// more blocks in a row.
Nf4Codes random_codes(int64_t out, int64_t in, bool is_double) {
  const int64_t blocks = in / kNf4Block;
  Nf4Codes weight{torch::empty({out * in / 2}, torch::kByte), {}};
  const Tensor absmax = torch::empty({out * blocks});
  quantize_nf4(torch::randn({out * in}), weight.codes, absmax);
  weight.codes = weight.codes.view({out, in / 2});
  weight.scales.place = {.first = 1, .per_row = blocks, .row_step = blocks + 2};
  if (!is_double) {
    weight.scales.absmax = absmax.view(torch::kByte).view({out, blocks * 4});
    return weight;
  }
  const NestedAbsmax full = quantize_absmax(torch::rand({out * (blocks + 2)}) + 1);
  weight.scales.absmax = full.codes.view({out, blocks + 2}).narrow(1, 1, blocks).contiguous();
  weight.scales.nested_absmax = full.nested.view(torch::kByte);
  return weight;
}

Tensor dequantized(const Nf4Codes& weight, int64_t out, int64_t in) {
  const Tensor values = torch::empty({out, in});
  dequantize_nf4(weight.codes, weight.scales, values);
  return values;
}

}  // namespace

TEST_CASE("rows and columns of codes are those of the whole weight") {
  torch::manual_seed(2);
  for (const bool is_double : {false, true}) {
    const Nf4Codes weight = random_codes(9, 192, is_double);
    const Tensor whole = dequantized(weight, 9, 192);
    CHECK(torch::equal(dequantized(weight.rows(3, 4), 4, 192), whole.narrow(0, 3, 4)));
    CHECK(torch::equal(dequantized(weight.columns(64, 128), 9, 128), whole.narrow(1, 64, 128)));
    CHECK(torch::equal(dequantized(weight.columns(64, 64).rows(5, 2), 2, 64),
                       whole.narrow(1, 64, 64).narrow(0, 5, 2)));
  }
}

TEST_CASE("products of several tiles are those of the whole weight") {
  torch::manual_seed(3);
  constexpr int64_t kOut = 1100, kIn = 1024;
  static_assert(kOut * kIn > QuantizedProduct::kMaxTile);
  for (const auto& [is_double, dtype, bound] : {std::tuple(false, torch::kFloat, 2e-6),
                                                {true, torch::kFloat, 2e-6},
                                                {true, torch::kBFloat16, 8e-3},
                                                {false, torch::kHalf, 1e-3}}) {
    const Nf4Codes weight = random_codes(kOut, kIn, is_double);
    const Tensor whole = dequantized(weight, kOut, kIn).to(dtype);
    const Tensor bias = torch::randn({kOut}).to(dtype), x = torch::randn({33, kIn}).to(dtype),
                 dy = torch::randn({33, kOut}).to(dtype), sum = torch::randn({33, kIn}).to(dtype);
    const QuantizedProduct product(weight, std::nullopt);
    const auto close = [bound = bound](const Tensor& own, const Tensor& expected) {
      return difference(own, expected) < bound * expected.abs().max().item<double>();
    };
    CHECK(close(product.forward(x, {}, kOut), matrix_product(x, whole.t())));
    CHECK(close(product.forward(x, bias, kOut), matrix_product(x, whole.t(), bias)));
    const Tensor dx = matrix_product(dy, whole);
    CHECK(close(product.input_gradient(dy, kIn), dx));
    const Tensor added = sum.clone();
    CHECK(product.input_gradient(dy, kIn, added).is_same(added));
    CHECK(close(added, sum + dx));
    const QuantizedProduct rounded(weight, torch::kBFloat16);
    const Tensor in_bf16 = dequantized(weight, kOut, kIn).to(torch::kBFloat16).to(dtype);
    CHECK(close(rounded.input_gradient(dy, kIn), matrix_product(dy, in_bf16)));
  }
}

}  // namespace zeroth::model::quantized_product_test
