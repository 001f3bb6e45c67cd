// NF4 against numbers that bitsandbytes 0.50.2 has computed. ctest runs this at each CPU level.
#include "model/kernels/nf4.h"

#include <ATen/Functions.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/sha256.h"
#include "tests/model/materialize.h"

namespace zeroth::model::nf4_test {
namespace {

using torch::Tensor;

struct Quantized {
  Tensor codes, absmax;  // absmax fp32
};

Quantized quantize(const Tensor& values) {
  const Quantized result{torch::empty({(values.numel() + 1) / 2}, torch::kByte),
                         torch::empty({nf4_blocks(values.numel())})};
  quantize_nf4(values, result.codes, result.absmax);
  return result;
}

Tensor bytes_of(const Tensor& values) {
  return values.contiguous().view(torch::kByte);
}

Tensor dequantize(const Quantized& weight, int64_t numel, torch::Dtype dtype = torch::kFloat) {
  const Tensor out = torch::empty({numel}, dtype);
  dequantize_nf4(weight.codes, {bytes_of(weight.absmax)}, out);
  return out;
}

std::string digest(const Tensor& bytes) {
  const auto hash = Sha256::of(
      {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())});
  std::string text;
  for (size_t i = 0; i < 8; ++i) text += fmt::format("{:02x}", static_cast<unsigned>(hash[i]));
  return text;
}

// x_i = (((37 i) mod 101) - 50) / 50 * (1 + floor(i / 64) / 8)
Tensor example() {
  const Tensor i = torch::arange(16384, torch::kDouble);
  return i.mul(37)
      .remainder(101)
      .sub(50)
      .div(50)
      .mul(i.div(64).floor().div(8).add(1))
      .to(torch::kFloat);
}

std::vector<uint8_t> first_bytes(const Tensor& bytes, int64_t count) {
  const auto* const data = bytes.const_data_ptr<uint8_t>();
  return {data, data + count};
}

}  // namespace

TEST_CASE("codes and maxima are those of bitsandbytes") {
  const auto [codes, absmax] = quantize(example());
  CHECK(first_bytes(codes, 8) ==
        std::vector<uint8_t>{0x04, 0xc1, 0x6e, 0x29, 0xf3, 0xb0, 0x5d, 0x17});
  CHECK(digest(codes) == "1e20dc0cb224746a");
  CHECK(torch::equal(absmax.narrow(0, 0, 4), torch::tensor({1.0F, 1.125F, 1.25F, 1.375F})));
}

TEST_CASE("double quantization gives the codes, maxima and mean of bitsandbytes") {
  const NestedAbsmax scales = quantize_absmax(quantize(example()).absmax);
  CHECK(first_bytes(scales.codes, 8) == std::vector<uint8_t>{0, 0, 1, 1, 2, 3, 3, 4});
  CHECK(first_bytes(scales.codes.slice(0, 252), 4) == std::vector<uint8_t>{253, 250, 254, 255});
  CHECK(digest(scales.codes) == "524ae74cd77d586d");
  CHECK(torch::equal(scales.nested, torch::tensor({15.962177276611328F, 16.912822723388672F})));
  const Tensor out = torch::empty({16384});
  dequantize_nf4(quantize(example()).codes,
                 {scales.codes, bytes_of(scales.nested), {.first = 0, .per_row = 4, .row_step = 4}},
                 out);
  // The largest number of each block is 1 or -1 times its scale.
  const Tensor back = out.view({-1, 64}).abs().amax(1).narrow(0, 0, 4);
  CHECK(difference(back, torch::tensor({1.0628796F, 1.0628796F, 1.2873468F, 1.2873468F})) < 1e-7);
}

TEST_CASE("the numbers are those of the paper's construction") {
  // Eight quantiles of the normal distribution above zero, seven below, evenly spaced in
  // probability from 0.9677083 on, and zero; divided by the largest.
  constexpr double kOffset = 0.9677083;
  const auto quantiles = [](int64_t count) {
    const Tensor p = torch::linspace(kOffset, 0.5, count + 1, torch::kDouble);
    return at::special_ndtri(p.narrow(0, 0, count));
  };
  const Tensor all = at::cat({quantiles(8), torch::zeros({1}, torch::kDouble), -quantiles(7)});
  const Tensor expected = std::get<0>((all / all.max()).sort());
  for (int64_t i = 0; i < 16; ++i) {
    CHECK(kNf4Values[i] == doctest::Approx(expected[i].item<double>()).epsilon(1e-6));
  }
}

TEST_CASE("the error of normal weights is within the bounds of bitsandbytes' test") {
  torch::manual_seed(5);
  const Tensor values = torch::randn({1024 * 1024});
  const Quantized weight = quantize(values);
  const auto check = [&](const Tensor& back, double absolute, double relative) {
    const Tensor error = (back - values).abs();
    CHECK(error.mean().item<double>() < absolute);
    CHECK((error / (values.abs() + 1e-8)).mean().item<double>() < relative);
  };
  check(dequantize(weight, values.numel()), 0.072798 + 7 * 0.000074, 0.203339 + 7 * 0.0006);
  const NestedAbsmax scales = quantize_absmax(weight.absmax);
  const Tensor out = torch::empty({values.numel()});
  dequantize_nf4(weight.codes, {scales.codes, bytes_of(scales.nested), {0, 1024, 1024}}, out);
  check(out, 0.11, 0.28);
}

TEST_CASE("any number of weights is dequantized as by the formula, to the bit") {
  torch::manual_seed(6);
  for (const int64_t numel : {1, 2, 63, 64, 65, 127, 128, 1000, 70001}) {
    CAPTURE(numel);
    const Quantized weight = quantize(torch::randn({numel}));
    for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf, torch::kDouble}) {
      const Tensor expected = torch::empty({numel}, dtype);
      formula::dequantize_nf4(weight.codes, {bytes_of(weight.absmax)}, expected);
      CHECK(torch::equal(dequantize(weight, numel, dtype), expected));
    }
    // What is dequantized has the same codes again.
    const Quantized again = quantize(dequantize(weight, numel));
    CHECK(torch::equal(again.codes, weight.codes));
    CHECK(torch::equal(again.absmax, weight.absmax));
  }
}

TEST_CASE("a slice has the scales of its blocks in the full weight") {
  torch::manual_seed(7);
  constexpr int64_t kOut = 24, kIn = 1024, kRow = kIn / 64;
  const Tensor values = torch::randn({kOut, kIn});
  const Quantized weight = quantize(values.flatten());
  const NestedAbsmax scales = quantize_absmax(weight.absmax);
  const Tensor nested = bytes_of(scales.nested), full = torch::empty({kOut, kIn});
  dequantize_nf4(weight.codes, {scales.codes, nested, {0, kRow, kRow}}, full);
  const Tensor codes = weight.codes.view({kOut, kIn / 2}), absmax = scales.codes.view({kOut, kRow});
  const auto check = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const auto part = [&](const Tensor& all, int64_t divisor) {
      return all.narrow(0, row, rows).narrow(1, column / divisor, columns / divisor).contiguous();
    };
    const BlockPlace place{row * kRow + column / 64, columns / 64, kRow};
    const Tensor out = torch::empty({rows, columns}), expected = torch::empty({rows, columns});
    dequantize_nf4(part(codes, 2), {part(absmax, 64), nested, place}, out);
    CHECK(torch::equal(out, full.narrow(0, row, rows).narrow(1, column, columns)));
    formula::dequantize_nf4(part(codes, 2), {part(absmax, 64), nested, place}, expected);
    CHECK(torch::equal(out, expected));
  };
  check(0, kOut, 0, kIn);
  check(7, 10, 0, kIn);
  check(0, kOut, 512, 512);
  check(3, 5, 64, 192);
}

TEST_CASE("weights of zero, and weights too small for a scale, are zero") {
  const Quantized zeros = quantize(torch::zeros({64}));
  CHECK(torch::equal(zeros.codes, torch::full({32}, 0x77, torch::kByte)));
  CHECK(torch::equal(dequantize(zeros, 64), torch::zeros({64})));
  const Tensor tiny = torch::full({64}, 1e-40F);
  CHECK(dequantize(quantize(tiny), 64).abs().max().item<float>() <= 1e-40F);
}

}  // namespace zeroth::model::nf4_test
