// The loops of Lamb's two passes; see CpuKernels in cpu_kernels.h. Included by cpu_kernels.cpp.
#pragma once

#include <type_traits>

#include "optim/cpu/cpu_kernels.h"
#include "optim/cpu/cpu_lanes.h"
#include "optim/update_formulas.h"

namespace zeroth::optim::kernel {
namespace {

// Number of parallel sums of squares, whatever a register holds.
constexpr int64_t kSumLanes = 16;
constexpr int64_t kVectors = kSumLanes / kLanes;

struct SquareLanes {
  WideVec sums[kSumLanes / kDoubles] = {};

  ZEROTH_INLINE void add_squares(int64_t vector, Vec x) {
    const WideHalves wide = widened(x);
#pragma GCC unroll 2
    for (int64_t k = 0; k < 2; ++k) sums[vector * 2 + k] += wide.at[k] * wide.at[k];
  }
  double at(int64_t lane) const {
    return sums[lane / kDoubles][lane % kDoubles];
  }
  double sum() const {
    double sum = 0;
    for (int64_t lane = 0; lane < kSumLanes; ++lane) sum += at(lane);
    return sum;
  }
};

struct LambSums {
  SquareLanes weights, direction;
};

// Updates the moments of kSumLanes elements, from element i on, and adds their squares.
template <typename Grad>
ZEROTH_INLINE void sum_lanes(const Constants& c, const LambArrays& arrays, int64_t i,
                             LambSums& sums) {
#pragma GCC unroll 4
  for (int64_t k = 0; k < kVectors; ++k) {
    const int64_t at = i + k * kLanes;
    Vec s[2] = {load(arrays.states[0] + at), load(arrays.states[1] + at)};
    const Vec p = load(arrays.master + at);
    LambFormula::moments(c, load(static_cast<const Grad*>(arrays.grad) + at), s);
    store(arrays.states[0] + at, s[0]);
    store(arrays.states[1] + at, s[1]);
    sums.weights.add_squares(k, p);
    sums.direction.add_squares(k, LambFormula::direction(c, p, s));
  }
}

template <typename Copy>
ZEROTH_INLINE void step_lanes(const Constants& c, const LambArrays& arrays, int64_t i) {
#pragma GCC unroll 4
  for (int64_t k = 0; k < kVectors; ++k) {
    const int64_t at = i + k * kLanes;
    const Vec s[2] = {load(arrays.states[0] + at), load(arrays.states[1] + at)};
    Vec p = load(arrays.master + at);
    p = fma(spread(c.minus_rate), LambFormula::direction(c, p, s), p);
    store(arrays.master + at, p);
    if constexpr (!std::is_same_v<Copy, float>) store(static_cast<Copy*>(arrays.copy) + at, p);
  }
}

// LambRemainder is a padded copy of the last elements of the weights and their states, fewer than
// kSumLanes. Each pass writes back only what it changes: the other arrays are leased for reading.
struct LambRemainder {
  float master[kSumLanes] = {}, states[2][kSumLanes] = {};

  LambRemainder(const LambArrays& from, const ArrayPart& part) {
    part.read(from.master, master);
    for (int k = 0; k < 2; ++k) part.read(from.states[k], states[k]);
  }
  LambArrays arrays(const void* grad, void* copy) {
    return {master, {states[0], states[1]}, grad, copy};
  }
};

template <typename Grad>
Squares lamb_sum(const Constants& constants, const LambArrays& arrays, int64_t count) {
  const Constants c = constants;  // local to this function, so it is not reloaded after each store
  const LambArrays a = arrays;
  LambSums sums;
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) sum_lanes<Grad>(c, a, i, sums);
  Squares all = {sums.weights.sum(), sums.direction.sum()};
  if (i == count) return all;
  const ArrayPart part{i, count - i};
  LambRemainder remainder(a, part);
  Grad grad[kSumLanes] = {};
  part.read(a.grad, grad);
  LambSums last;
  sum_lanes<Grad>(c, remainder.arrays(grad, nullptr), 0, last);
  for (int k = 0; k < 2; ++k) part.write(a.states[k], remainder.states[k]);
  for (int64_t lane = 0; lane < count - i; ++lane) {
    all.weights += last.weights.at(lane);
    all.direction += last.direction.at(lane);
  }
  return all;
}

template <typename Copy>
void lamb_step(const Constants& constants, const LambArrays& arrays, int64_t count) {
  const Constants c = constants;
  const LambArrays a = arrays;
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) step_lanes<Copy>(c, a, i);
  if (i == count) return;
  const ArrayPart part{i, count - i};
  LambRemainder remainder(a, part);
  Copy copy[kSumLanes] = {};
  step_lanes<Copy>(c, remainder.arrays(nullptr, copy), 0);
  part.write(a.master, remainder.master);
  if constexpr (!std::is_same_v<Copy, float>) part.write(a.copy, copy);
}

}  // namespace
}  // namespace zeroth::optim::kernel
