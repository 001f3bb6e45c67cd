// The arithmetic of CRC32C: polynomials over GF(2) modulo Castagnoli's. Bits are reflected: the
// highest one is the coefficient of x^0.
#pragma once

#include <cstdint>

namespace zeroth {

constexpr uint32_t kCastagnoli = 0x82f63b78;

constexpr uint32_t multiply_polynomials(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kCastagnoli : 0);
  }
  return product;
}

constexpr uint32_t power_of_x(uint64_t exponent) {
  uint32_t power = uint32_t{1} << 31;
  uint32_t factor = uint32_t{1} << 30;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power = multiply_polynomials(power, factor);
    factor = multiply_polynomials(factor, factor);
  }
  return power;
}

}  // namespace zeroth
