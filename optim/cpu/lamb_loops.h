// The loops of Lamb's two passes; see LambKernels in cpu_kernels.h. Included by cpu_kernels.cpp.
#pragma once

#include <cstring>
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

  Squares squares() const { return {weights.sum(), direction.sum()}; }
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

// Calls work(arrays) with padded copies of the last `count` elements, fewer than kSumLanes, from
// `begin` on, and copies the results back.
template <typename Grad, typename Copy, typename Work>
void with_padded_copies(const LambArrays& arrays, int64_t begin, int64_t count, const Work& work) {
  float master[kSumLanes] = {}, states[2][kSumLanes] = {};
  Grad grad[kSumLanes] = {};
  Copy copy[kSumLanes] = {};
  const ArrayPart part{begin, count};
  part.read(arrays.master, master);
  for (int k = 0; k < 2; ++k) part.read(arrays.states[k], states[k]);
  if (arrays.grad != nullptr) part.read(arrays.grad, grad);
  work(LambArrays{master, {states[0], states[1]}, grad, copy});
  part.write(arrays.master, master);
  for (int k = 0; k < 2; ++k) part.write(arrays.states[k], states[k]);
  if (arrays.copy != nullptr) part.write(arrays.copy, copy);
}

template <typename Grad>
Squares lamb_sum(const Constants& constants, const LambArrays& arrays, int64_t count) {
  const Constants c = constants;  // local to this function, so it is not reloaded after each store
  LambArrays a = arrays;
  a.copy = nullptr;  // only the second pass writes it
  LambSums sums;
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) sum_lanes<Grad>(c, a, i, sums);
  Squares all = sums.squares();
  if (i == count) return all;
  LambSums last;
  with_padded_copies<Grad, float>(
      a, i, count - i, [&](const LambArrays& padded) { sum_lanes<Grad>(c, padded, 0, last); });
  for (int64_t lane = 0; lane < count - i; ++lane) {
    all.weights += last.weights.at(lane);
    all.direction += last.direction.at(lane);
  }
  return all;
}

template <typename Copy>
void lamb_step(const Constants& constants, const LambArrays& arrays, int64_t count) {
  const Constants c = constants;
  LambArrays a = arrays;
  a.grad = nullptr;  // only the first pass reads it
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) step_lanes<Copy>(c, a, i);
  if (i == count) return;
  with_padded_copies<float, Copy>(
      a, i, count - i, [&](const LambArrays& padded) { step_lanes<Copy>(c, padded, 0); });
}

}  // namespace
}  // namespace zeroth::optim::kernel
