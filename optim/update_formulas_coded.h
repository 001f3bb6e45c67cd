// The update of elements whose moments are codes of 8 bits (optim/coded_states.h), on vectors of
// floats. The includer must define, besides what update_formulas.h requires, lookups of vectors:
// bits_of(), from_bits() and lookup().
#pragma once

#include "optim/coded_states.h"
#include "optim/update_formulas.h"

namespace zeroth::optim::kernel {
namespace {

// CodedAdamFormula is Adam in the order of operations of bitsandbytes on the CPU, with decoupled
// decay before the step. s: the decoded moments before, the exact ones afterwards.
struct CodedAdamFormula {
  ZEROTH_INLINE static void update(const Constants& c, Vec wire, Vec& p, Vec (&s)[kMaxStates]) {
    LambFormula::moments(c, wire, s);
    const Vec divisor = root(s[1]) / spread(c.root_divisor) + spread(c.eps);
    p = p * spread(c.keep) + spread(c.minus_rate) * s[0] / divisor;
  }
};

ZEROTH_INLINE Vec magnitude(Vec x) {
  return from_bits(bits_of(x) & 0x7fffffffU);
}

// Returns the larger one, without NaNs of x.
ZEROTH_INLINE Vec larger(Vec largest, Vec x) {
  return x > largest ? x : largest;
}

ZEROTH_INLINE Vec decoded(const CodeTable& table, Ints codes, Vec maximum) {
  return lookup(table.values, codes) * maximum;
}

// A block's maximum as it is stored, from its largest magnitude.
ZEROTH_INLINE float stored_maximum(float largest) {
  constexpr float kLargest = 0x1.fffffep127F;
  return largest < kLargest ? largest : kLargest;
}
// Returns a finite factor that maps the block's values to magnitudes of at most about 1.
ZEROTH_INLINE float inverse_maximum(float stored) {
  constexpr float kSmallest = 0x1p-126F;
  return 1 / (stored > kSmallest ? stored : kSmallest);
}

// Returns the ranks of magnitudes x >= 0.
ZEROTH_INLINE Ints ranks(const CodeTable& table, Vec x) {
  const Vec at_most_one = x < spread(1) ? x : spread(1);
  const Ints bits = bits_of(at_most_one);
  const Ints first = Ints{} + CodeTable::kFirstBits;
  const Ints rank = lookup(table.ranks, ((bits > first ? bits : first) - first) >> 16);
  return at_most_one > lookup(table.midpoints, rank) ? rank + 1 : rank;
}

ZEROTH_INLINE Ints unsigned_codes(const CodeTable& table, Vec x, float inverse) {
  return ranks(table, x * spread(inverse));
}

ZEROTH_INLINE Ints signed_codes(const CodeTable& table, Vec x, float inverse) {
  const Ints zero = Ints{} + CodeTables::kZeroCode;
  const Ints rank = ranks(table, magnitude(x) * spread(inverse));
  return (bits_of(x) >> 31) > Ints{} ? zero - (rank < zero ? rank : zero) : zero + rank;
}

}  // namespace
}  // namespace zeroth::optim::kernel
