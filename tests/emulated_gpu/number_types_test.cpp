// The emulation's bf16 and half, beside arithmetic of a test's own and, where CUDA's headers are
// found, beside CUDA's, bit for bit.
#include <doctest/doctest.h>

#include "tests/emulated_gpu/shapes.h"

namespace zeroth::emulated {

// Of cuda_number_types.cpp.
uint16_t cuda_bf16_bits(float value);
float cuda_from_bf16(uint16_t bits);
uint16_t cuda_half_bits(float value);
float cuda_from_half(uint16_t bits);

}  // namespace zeroth::emulated

namespace zeroth::emulated::number_types_test {
namespace {

constexpr int kFloats = 4'000'000;

// All kinds of bits, and half of them near to where rounding turns.
template <typename Check>
void each_float(Check&& check) {
  Draws draws(1);
  for (int i = 0; i < kFloats; ++i) {
    auto bits = static_cast<uint32_t>(draws.next());
    if (i % 2 == 0) {
      const auto kept = static_cast<int>(draws.from_to(8, 23));  // dropped bits: 1000.. and beside
      bits = ((bits >> kept << kept) | uint32_t{1} << (kept - 1)) + draws.next() % 3 - 1;
    }
    check(bits, __uint_as_float(bits));
  }
}

template <typename T, typename Widen, typename Narrow>
int64_t differ_from_arithmetic(Widen&& widen, Narrow&& narrow) {
  int64_t differ = 0;
  for (uint32_t i = 0; i < 1 << 16; ++i) {
    const T value = {static_cast<uint16_t>(i)};
    const double expected = wide(value);
    const float got = widen(value);
    differ += std::isnan(expected) ? !std::isnan(got)
                                   : double{got} != expected || std::signbit(got) != (i >> 15 != 0);
    differ += !std::isnan(got) && narrow(got).bits != value.bits;
  }
  each_float([&](uint32_t, float value) {
    const T got = narrow(value);
    differ += std::isnan(value) ? got.bits != 0x7fff
                                : wide(got) != rounded<T>(double{value}) ||
                                      (got.bits >> 15 != 0) != std::signbit(value);
  });
  return differ;
}

}  // namespace

TEST_CASE("all 65536 values of bf16 and half are widened exactly, floats rounded to nearest even") {
  CHECK(differ_from_arithmetic<__nv_bfloat16>(__bfloat162float, __float2bfloat16_rn) == 0);
  CHECK(differ_from_arithmetic<__half>(__half2float, __float2half_rn) == 0);
}

#ifdef ZEROTH_CUDA_HEADERS
TEST_CASE("bf16 and half have the bits of CUDA's own, NaN included") {
  int64_t differ = 0;
  for (uint32_t i = 0; i < 1 << 16; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    differ += __float_as_uint(cuda_from_bf16(bits)) != __float_as_uint(__bfloat162float({bits}));
    differ += __float_as_uint(cuda_from_half(bits)) != __float_as_uint(__half2float({bits}));
  }
  CHECK(differ == 0);
  each_float([&](uint32_t, float value) {
    differ += cuda_bf16_bits(value) != __float2bfloat16_rn(value).bits;
    differ += cuda_half_bits(value) != __float2half_rn(value).bits;
  });
  CHECK(differ == 0);
}
#endif

}  // namespace zeroth::emulated::number_types_test
