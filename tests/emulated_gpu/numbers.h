// Elements of kernels as numbers in double, by arithmetic of its own: that of the kernels is what
// is tested.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/float16.h"

namespace zeroth::emulated {

constexpr double kFloatStep = 0x1p-24;  // half of a step of fp32 at 1

// Bits of the significand, least exponent, largest number.
template <typename T>
struct Layout;
template <>
struct Layout<float> {
  static constexpr int kBits = 24, kMinExponent = -126;
  static constexpr double kMaxValue = std::numeric_limits<float>::max();
};
template <>
struct Layout<Bf16> {
  static constexpr int kBits = 8, kMinExponent = -126;
  static constexpr double kMaxValue = 0x1.fep127;
};
template <>
struct Layout<Fp16> {
  static constexpr int kBits = 11, kMinExponent = -14;
  static constexpr double kMaxValue = 65504;
};
template <>
struct Layout<__nv_bfloat16> : Layout<Bf16> {};
template <>
struct Layout<__half> : Layout<Fp16> {};

template <typename T>
constexpr bool kIsBf16 = std::is_same_v<T, Bf16> || std::is_same_v<T, __nv_bfloat16>;

double half_value(uint16_t bits);

template <typename T>
double wide(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x;
  } else if constexpr (kIsBf16<T>) {
    return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
  } else {
    return half_value(x.bits);
  }
}

// To the nearest value of T, of two the even one.
template <typename T>
double rounded(double x) {
  constexpr int kDropped = 53 - Layout<T>::kBits;
  if (!std::isfinite(x)) return x;
  if (std::abs(x) < std::bit_cast<double>(uint64_t{1023 + Layout<T>::kMinExponent} << 52)) {
    constexpr double kMagic =
        1.5 * std::bit_cast<double>(uint64_t{1023 + 53 + Layout<T>::kMinExponent - Layout<T>::kBits}
                                    << 52);
    const double sum = x + kMagic;  // whose last bit is the least subnormal number's
    return std::copysign(sum - kMagic, x);
  }
  auto bits = std::bit_cast<uint64_t>(x);
  bits += (uint64_t{1} << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
  const auto result = std::bit_cast<double>(bits >> kDropped << kDropped);
  constexpr double kMaxValue = Layout<T>::kMaxValue;
  return std::abs(result) > kMaxValue ? std::copysign(INFINITY, x) : result;
}

// Whether `got` is what some number within `slack` of `expected` is rounded to.
template <typename T>
bool fits(T got, double expected, double slack) {
  const double value = wide(got);
  if (value >= expected - slack && value <= expected + slack) return true;
  if (std::isnan(expected)) return std::isnan(value);
  if (std::isinf(expected)) return value == expected;
  if constexpr (std::is_same_v<T, double>) {
    return false;
  } else {
    return value >= rounded<T>(expected - slack) && value <= rounded<T>(expected + slack);
  }
}

// `value` is one of T, but may be infinite.
template <typename T>
T narrowed(double value) {
  if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(value);
  } else if constexpr (kIsBf16<T>) {
    return T{static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16)};
  } else {
    const int sign = std::signbit(value) ? 0x8000 : 0;
    const double size = std::abs(value);
    if (size < 0x1p-14) return T{static_cast<uint16_t>(sign | static_cast<int>(size * 0x1p24))};
    if (std::isinf(size)) return T{static_cast<uint16_t>(sign | 0x7c00)};
    const int exponent = std::ilogb(size);  // the significand's first bit adds one to it
    const int significand = static_cast<int>(std::ldexp(size, 10 - exponent));
    return T{static_cast<uint16_t>(sign | (((exponent + 14) << 10) + significand))};
  }
}

// 0: NaN, 1 and 2: infinite, 3: -0, 4: subnormal.
template <typename T>
T special(int kind) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr float kValues[] = {NAN, INFINITY, -INFINITY, -0.F, 1e-42F};
    return kValues[kind];
  } else {
    constexpr uint16_t kInfinite = kIsBf16<T> ? 0x7f80 : 0x7c00;
    constexpr uint16_t kBits[] = {kInfinite + 0x20, kInfinite, kInfinite + 0x8000, 0x8000, 1};
    return T{kBits[kind]};
  }
}

}  // namespace zeroth::emulated
