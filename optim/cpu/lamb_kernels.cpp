// This file is compiled once per instruction set, which ZEROTH_ISA names (CMakeLists.txt).
#include "optim/cpu/lamb_kernels.h"

#include <cstring>
#include <type_traits>

#include "optim/cpu/cpu_lanes.h"
#include "optim/update_formulas.h"

namespace zeroth::optim::kernel {
namespace {

// Number of parallel sums of squares, whatever a register holds.
constexpr int64_t kSumLanes = 16;
constexpr int64_t kVectors = kSumLanes / kLanes;

constexpr int64_t kDoubles = kLanes / 2;  // doubles in a register
using Wide = double __attribute__((vector_size(8 * kDoubles)));
using Narrow = float __attribute__((vector_size(4 * kDoubles)));

struct SquareLanes {
  Wide sums[kSumLanes / kDoubles] = {};

  ZEROTH_INLINE void add_squares(int64_t vector, Vec x) {
    Narrow halves[2];
    std::memcpy(halves, &x, sizeof(x));
#pragma GCC unroll 2
    for (int64_t k = 0; k < 2; ++k) {
      const Wide wide = __builtin_convertvector(halves[k], Wide);
      sums[vector * 2 + k] += wide * wide;
    }
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

// Processes the last elements, fewer than kSumLanes: the same operations on padded copies.
template <typename Grad, typename Copy>
class LambRemainder {
 public:
  LambRemainder(const LambArrays& arrays, int64_t begin, int64_t count)
      : elements_(static_cast<size_t>(count)), from_(arrays) {
    from_.master += begin;
    for (float*& state : from_.states) state += begin;
    if (from_.grad != nullptr) from_.grad = static_cast<const Grad*>(from_.grad) + begin;
    if (from_.copy != nullptr) from_.copy = static_cast<Copy*>(from_.copy) + begin;
    load_from(master_, from_.master);
    for (int k = 0; k < 2; ++k) load_from(states_[k], from_.states[k]);
    if (from_.grad != nullptr) load_from(grad_, from_.grad);
  }

  LambArrays arrays() { return {master_, {states_[0], states_[1]}, grad_, copy_}; }
  void put_states() {
    for (int k = 0; k < 2; ++k) store_to(from_.states[k], states_[k]);
  }
  void put_weights() {
    store_to(from_.master, master_);
    if (from_.copy != nullptr) store_to(from_.copy, copy_);
  }

 private:
  template <typename E>
  void load_from(E (&to)[kSumLanes], const void* from) {
    std::memcpy(to, from, elements_ * sizeof(E));
  }
  template <typename E>
  void store_to(void* to, const E (&from)[kSumLanes]) {
    std::memcpy(to, from, elements_ * sizeof(E));
  }

  size_t elements_;
  LambArrays from_;
  float master_[kSumLanes] = {}, states_[2][kSumLanes] = {};
  Grad grad_[kSumLanes] = {};
  Copy copy_[kSumLanes] = {};
};

template <typename Grad>
Squares sum(const Constants& constants, const LambArrays& arrays, int64_t count) {
  const Constants c = constants;  // local to this function, so it is not reloaded after each store
  const LambArrays a = arrays;
  LambSums sums;
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) sum_lanes<Grad>(c, a, i, sums);
  Squares all = sums.squares();
  if (i == count) return all;
  LambRemainder<Grad, float> remainder(a, i, count - i);
  LambSums last;
  sum_lanes<Grad>(c, remainder.arrays(), 0, last);
  remainder.put_states();
  for (int64_t lane = 0; lane < count - i; ++lane) {
    all.weights += last.weights.at(lane);
    all.direction += last.direction.at(lane);
  }
  return all;
}

template <typename Copy>
void step(const Constants& constants, const LambArrays& arrays, int64_t count) {
  const Constants c = constants;
  const LambArrays a = arrays;
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) step_lanes<Copy>(c, a, i);
  if (i == count) return;
  LambRemainder<float, Copy> remainder(a, i, count - i);
  step_lanes<Copy>(c, remainder.arrays(), 0);
  remainder.put_weights();
}

}  // namespace

namespace ZEROTH_ISA {
const LambKernels kLamb = {.sum = {sum<float>, sum<Bf16>, sum<Fp16>},
                           .step = {step<float>, step<Bf16>, step<Fp16>}};
}

static_assert(kFp32 == 0 && kBf16 == 1 && kFp16 == 2 && kNumFormats == 3);

}  // namespace zeroth::optim::kernel
