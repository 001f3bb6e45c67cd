// One float of a GPU's thread, with the operations of cpu_lanes.h: all rounded to nearest, so that
// a GPU gives the CPU's bits, NaN payloads aside. Compiled with --fmad=false.
#pragma once

#include <cuda_fp16.h>

#include "base/float16.h"

#define ZEROTH_INLINE __device__ __forceinline__

namespace zeroth::optim::kernel {
namespace {

using Vec = float;
using Ints = uint32_t;

ZEROTH_INLINE Vec spread(float x) {
  return x;
}
ZEROTH_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return __fmaf_rn(a, b, c);
}
ZEROTH_INLINE Vec root(Vec x) {
  return __fsqrt_rn(x);
}
ZEROTH_INLINE Vec with_sign(Vec magnitude, Vec x) {
  return copysignf(magnitude, x);
}

ZEROTH_INLINE Ints bits_of(Vec x) {
  return __float_as_uint(x);
}
ZEROTH_INLINE Vec from_bits(Ints bits) {
  return __uint_as_float(bits);
}
template <typename T>
ZEROTH_INLINE T lookup(const T* table, Ints index) {
  return table[index];
}

ZEROTH_INLINE Vec load(const float* p) {
  return *p;
}
ZEROTH_INLINE Vec load(const Bf16* p) {
  return __uint_as_float(static_cast<uint32_t>(p->bits) << 16);
}
ZEROTH_INLINE Vec load(const Fp16* p) {
  return __half2float(__ushort_as_half(p->bits));
}

ZEROTH_INLINE void store(float* p, Vec x) {
  *p = x;
}
// Stores x rounded to nearest even.
ZEROTH_INLINE void store(Bf16* p, Vec x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t sum = bits + 0x7fff + (bits >> 16 & 1);
  p->bits = static_cast<uint16_t>(x != x ? 0x7fc0 : sum >> 16);
}
ZEROTH_INLINE void store(Fp16* p, Vec x) {
  p->bits = __half_as_ushort(__float2half_rn(x));
}
// Stores x rounded stochastically, by a number below 2^16.
ZEROTH_INLINE void store_stochastic(Bf16* p, Vec x, Ints random) {
  p->bits = static_cast<uint16_t>(x != x ? 0x7fc0 : (__float_as_uint(x) + random) >> 16);
}

}  // namespace
}  // namespace zeroth::optim::kernel
