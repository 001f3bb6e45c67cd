// The formulas of cpu_update.h on vectors of floats. The includer must define, in
// zeroth::optim::kernel, the vectors Vec and Ints with their operations (optim/cpu/cpu_lanes.h,
// optim/gpu/lanes.cuh), and ZEROTH_INLINE: how functions are inlined.
#pragma once

#include "optim/update_constants.h"

namespace zeroth::optim::kernel {
namespace {

// Returns the gradient `wire`, as it was received, times the factor, which includes clipping,
// unscaling and the like.
ZEROTH_INLINE Vec scaled(const Constants& c, Vec wire) {
  const Vec g = wire * spread(c.factor);
  return c.divisor == 1 ? g : g / spread(c.divisor);
}

ZEROTH_INLINE Vec decayed(const Constants& c, Vec p, Vec g) {
  return c.decay == 0 ? g : fma(p, spread(c.decay), g);
}

// Each formula updates p and its states s with the received gradient.
struct AdamFormula {
  static constexpr int kNumStates = 2;
  ZEROTH_INLINE static void update(const Constants& c, Vec wire, Vec& p, Vec (&s)[kMaxStates]) {
    const Vec g = decayed(c, p, scaled(c, wire));
    s[0] = fma(spread(c.add_first), g - s[0], c.from_gradient ? g : s[0]);
    s[1] = fma(spread(c.add_second) * g, g, s[1] * spread(c.keep_second));
    const Vec divisor = root(s[1]) / spread(c.root_divisor) + spread(c.eps);
    p = p * spread(c.keep) + spread(c.minus_rate) * s[0] / divisor;
  }
};

struct LionFormula {
  static constexpr int kNumStates = 1;
  ZEROTH_INLINE static void update(const Constants& c, Vec wire, Vec& p, Vec (&s)[kMaxStates]) {
    const Vec direction = fma(wire, spread(c.add_first), s[0] * spread(c.keep_first));
    p = p * spread(c.keep) - with_sign(spread(c.magnitude), direction);
    s[0] = fma(wire, spread(c.add_second), s[0] * spread(c.keep_second));
  }
};

struct AdagradFormula {
  static constexpr int kNumStates = 1;
  ZEROTH_INLINE static void update(const Constants& c, Vec wire, Vec& p, Vec (&s)[kMaxStates]) {
    const Vec g = decayed(c, p, scaled(c, wire));
    s[0] = fma(g, g, s[0]);
    p = p + spread(c.minus_rate) * g / (root(s[0]) + spread(c.eps));
  }
};

struct SgdFormula {
  static constexpr int kNumStates = 0;
  ZEROTH_INLINE static void update(const Constants& c, Vec wire, Vec& p, Vec (&)[kMaxStates]) {
    p = fma(decayed(c, p, scaled(c, wire)), spread(c.minus_rate), p);
  }
};

struct SgdMomentumFormula {
  static constexpr int kNumStates = 1;
  ZEROTH_INLINE static void update(const Constants& c, Vec wire, Vec& p, Vec (&s)[kMaxStates]) {
    const Vec g = decayed(c, p, scaled(c, wire));
    s[0] = c.from_gradient ? g : fma(g, spread(c.add_first), s[0] * spread(c.keep_first));
    p = fma(c.nesterov ? fma(s[0], spread(c.keep_first), g) : s[0], spread(c.minus_rate), p);
  }
};

// LambFormula runs in two passes: the step is a multiple of the direction that is known only after
// all directions are computed.
struct LambFormula {
  ZEROTH_INLINE static void moments(const Constants& c, Vec wire, Vec (&s)[kMaxStates]) {
    const Vec g = scaled(c, wire);
    s[0] = fma(spread(c.add_first), g, s[0] * spread(c.keep_first));
    s[1] = fma(spread(c.add_second) * g, g, s[1] * spread(c.keep_second));
  }
  ZEROTH_INLINE static Vec direction(const Constants& c, Vec p, const Vec (&s)[kMaxStates]) {
    const Vec eps = spread(c.eps);
    const Vec divisor = c.eps_inside ? root(s[1] + eps) : root(s[1]) + eps;
    return fma(p, spread(c.decay), s[0] / divisor);
  }
};

// An OffsetCounter finds the lower halves of elements' offsets, one after the other.
struct OffsetCounter {
  uint32_t shift;  // of the row: an element's offset minus its index
  int64_t end;     // of the row
  int64_t length;
  uint32_t gap;

  // Starts at element i.
  ZEROTH_INLINE OffsetCounter(const ElementOffsets& offsets, int64_t i)
      : shift(static_cast<uint32_t>(offsets.first)),
        end(offsets.left),
        length(offsets.length),
        gap(static_cast<uint32_t>(offsets.gap)) {
    if (i < end) return;
    const int64_t gaps = (i - end) / length + 1;
    shift += static_cast<uint32_t>(gaps) * gap;
    end += gaps * length;
  }
  // Returns the offset of an element: the same as in the previous call, or the next one.
  ZEROTH_INLINE uint32_t at(int64_t i) {
    if (i == end) {
      shift += gap;
      end += length;
    }
    return shift + static_cast<uint32_t>(i);
  }
};

// Returns 16 random bits for each offset: the upper half of lowbias32, the integer hash of least
// bias that Chris Wellons's hash-prospector found (nullprogram.com/blog/2018/07/31), keyed before
// each multiplication.
ZEROTH_INLINE Ints random_bits(RoundingKey key, Ints offset) {
  Ints x = offset ^ key.first;
  x = (x ^ x >> 16) * 0x7feb352dU ^ key.second;
  x = (x ^ x >> 15) * 0x846ca68bU;
  return x >> 16;
}

// Stores a master or a state; bf16 is rounded by the random numbers of these elements.
ZEROTH_INLINE void store_rounded(float* p, Vec x, RoundingKey, Ints) {
  store(p, x);
}
ZEROTH_INLINE void store_rounded(Bf16* p, Vec x, RoundingKey key, Ints offsets) {
  store_stochastic(p, x, random_bits(key, offsets));
}

}  // namespace
}  // namespace zeroth::optim::kernel
