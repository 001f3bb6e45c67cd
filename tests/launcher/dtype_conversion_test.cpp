#include "launcher/commands/export_model.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace zeroth::launcher::dtype_conversion_test {
namespace {

template <typename To, typename From>
To through(From value, Dtype from, Dtype to) {
  To result{};
  const auto bad = convert(std::as_bytes(std::span(&value, 1)), from,
                           std::as_writable_bytes(std::span(&result, 1)), to);
  REQUIRE_FALSE(bad);
  return result;
}

float value_of(uint16_t bits, Dtype dtype) {
  return through<float>(bits, dtype, Dtype::kF32);
}

uint16_t bits_of(float value, Dtype dtype) {
  return through<uint16_t>(value, Dtype::kF32, dtype);
}

// The value that `convert` stumbles over; 0: none.
float refused(float value, Dtype dtype) {
  uint16_t result = 0;
  return convert(std::as_bytes(std::span(&value, 1)), Dtype::kF32,
                 std::as_writable_bytes(std::span(&result, 1)), dtype)
      .value_or(0);
}

}  // namespace

TEST_CASE("every 16-bit number comes back from fp32, and what lies between goes to the nearest") {
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBf16}) {
    const uint16_t infinity = dtype == Dtype::kF16 ? 0x7c00 : 0x7f80;
    for (uint32_t bits = 0; bits < infinity; ++bits) {
      const auto here = static_cast<uint16_t>(bits);
      const float value = value_of(here, dtype);
      REQUIRE(bits_of(value, dtype) == here);
      REQUIRE(bits_of(-value, dtype) == (here | 0x8000));
      if (bits + 1 == infinity) break;
      const float next = value_of(static_cast<uint16_t>(bits + 1), dtype);
      REQUIRE(next > value);
      const float tie = value + (next - value) / 2;
      if (tie == value || tie == next) continue;  // below what fp32 holds
      const uint16_t even = bits % 2 == 0 ? here : static_cast<uint16_t>(bits + 1);
      REQUIRE(bits_of(tie, dtype) == even);
      REQUIRE(bits_of(std::nextafter(tie, 0.0F), dtype) == here);
      REQUIRE(bits_of(std::nextafter(tie, HUGE_VALF), dtype) == here + 1);
    }
  }
}

TEST_CASE("known numbers have their bits") {
  CHECK(bits_of(1, Dtype::kF16) == 0x3c00);
  CHECK(bits_of(65504, Dtype::kF16) == 0x7bff);
  CHECK(bits_of(0x1p-24F, Dtype::kF16) == 1);
  CHECK(bits_of(0x1p-25F, Dtype::kF16) == 0);
  CHECK(bits_of(0x1p-14F, Dtype::kF16) == 0x400);
  CHECK(bits_of(1, Dtype::kBf16) == 0x3f80);
  CHECK(bits_of(0.1F, Dtype::kBf16) == 0x3dcd);
  CHECK(through<uint16_t>(uint16_t{0x3f80}, Dtype::kBf16, Dtype::kF16) == 0x3c00);
  CHECK(through<uint16_t>(uint16_t{0x3c01}, Dtype::kF16, Dtype::kBf16) == 0x3f80);
  CHECK(through<float>(0.1F, Dtype::kF32, Dtype::kF32) == 0.1F);
}

TEST_CASE("a value beyond the other precision, or not finite, is told") {
  CHECK(refused(65519.996F, Dtype::kF16) == 0);
  CHECK(refused(65520, Dtype::kF16) == 65520);
  CHECK(refused(-1e30F, Dtype::kF16) == -1e30F);
  CHECK(refused(3.38e38F, Dtype::kBf16) == 0);
  CHECK(refused(std::numeric_limits<float>::max(), Dtype::kBf16) > 3.4e38F);
  CHECK(std::isnan(refused(NAN, Dtype::kBf16)));
  CHECK(refused(-INFINITY, Dtype::kF16) == -INFINITY);
  const std::vector<float> several = {1, 2, 1e6, 3};
  std::vector<uint16_t> rounded(4);
  CHECK(convert(std::as_bytes(std::span(several)), Dtype::kF32,
                std::as_writable_bytes(std::span(rounded)), Dtype::kF16) == 1e6F);
}

TEST_CASE("precisions have their names") {
  CHECK(parse_dtype("BF16") == Dtype::kBf16);
  CHECK_FALSE(parse_dtype("F64"));
  CHECK(dtype_info(Dtype::kF16).safetensors == "F16");
  CHECK(dtype_info(Dtype::kBf16).config == "bfloat16");
  CHECK(dtype_info(Dtype::kF32).element_bytes == 4);
}

}  // namespace zeroth::launcher::dtype_conversion_test
