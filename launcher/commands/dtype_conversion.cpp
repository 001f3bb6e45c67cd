#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"
#include "launcher/commands/export_model.h"

namespace zeroth::launcher {
namespace {

float to_float(float value) {
  return value;
}

float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Converts from a sign, five bits of exponent, and ten of fraction.
float to_float(Fp16 value) {
  const uint32_t exponent = value.bits >> 10 & 0x1f, fraction = value.bits & 0x3ff;
  const auto size = static_cast<float>(exponent == 0 ? fraction : fraction + 0x400);
  float result = std::ldexp(size, static_cast<int>(exponent == 0 ? 1 : exponent) - 25);
  if (exponent == 0x1f) result = fraction == 0 ? HUGE_VALF : std::nanf("");
  return (value.bits & 0x8000) != 0 ? -result : result;
}

void round_to(float value, float& result) {
  result = value;
}

// Rounds to nearest; in a tie, the last remaining bit decides. Requires a finite value.
void round_to(float value, Bf16& result) {
  const auto bits = std::bit_cast<uint32_t>(value);
  result.bits = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void round_to(float value, Fp16& result) {
  constexpr float kBeyond = 65520;  // half a step above the maximum: rounds to infinity
  const auto sign = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16 & 0x8000);
  const float size = std::fabs(value);
  uint32_t bits = 0x7c00;
  if (size < 6.103515625e-05F) {  // 2^-14: fractions of 2^-24, which nearbyint rounds to even
    bits = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, 24)));
  } else if (size < kBeyond) {
    const auto whole = std::bit_cast<uint32_t>(size);
    bits = ((whole + 0xfff + (whole >> 13 & 1)) >> 13) - (112U << 10);
  }
  result.bits = static_cast<uint16_t>(bits | sign);
}

template <typename From, typename To>
std::optional<float> convert_elements(std::span<const std::byte> from, std::span<std::byte> to) {
  const size_t count = to.size() / sizeof(To);
  ZEROTH_CHECK(from.size() == count * sizeof(From), "{} bytes to {}", from.size(), to.size());
  for (size_t i = 0; i < count; ++i) {
    From stored;
    To rounded;
    std::memcpy(&stored, from.data() + i * sizeof(From), sizeof(From));
    const float value = to_float(stored);
    if (!std::isfinite(value)) return value;
    round_to(value, rounded);
    if (!std::isfinite(to_float(rounded))) return value;
    std::memcpy(to.data() + i * sizeof(To), &rounded, sizeof(To));
  }
  return std::nullopt;
}

template <typename From>
std::optional<float> convert_from(std::span<const std::byte> from, std::span<std::byte> to,
                                  Dtype dtype) {
  if (dtype == Dtype::kF32) return convert_elements<From, float>(from, to);
  if (dtype == Dtype::kBf16) return convert_elements<From, Bf16>(from, to);
  return convert_elements<From, Fp16>(from, to);
}

}  // namespace

std::optional<Dtype> parse_dtype(std::string_view safetensors_name) {
  for (const DtypeInfo& info : kDtypes)
    if (safetensors_name == info.safetensors) return info.dtype;
  return std::nullopt;
}

std::optional<float> convert(std::span<const std::byte> from, Dtype from_dtype,
                             std::span<std::byte> to, Dtype to_dtype) {
  if (from_dtype == Dtype::kF32) return convert_from<float>(from, to, to_dtype);
  if (from_dtype == Dtype::kBf16) return convert_from<Bf16>(from, to, to_dtype);
  return convert_from<Fp16>(from, to, to_dtype);
}

}  // namespace zeroth::launcher
