// Compiled once per instruction set, which ZEROTH_ISA names (CMakeLists.txt).
#include "optim/lamb_kernels.h"

#include <cstring>
#include <type_traits>

#include "optim/host_lanes.h"
#include "optim/update_formulas.h"

namespace zeroth::optim::kernel {
namespace {

// Squares are added in so many places side by side, whatever a register holds.
constexpr int64_t kPlaces = 16;
constexpr int64_t kVectors = kPlaces / kLanes;

constexpr int64_t kDoubles = kLanes / 2;  // of a register
using Wide = double __attribute__((vector_size(8 * kDoubles)));
using Narrow = float __attribute__((vector_size(4 * kDoubles)));

struct Places {
  Wide sums[kPlaces / kDoubles] = {};

  ZEROTH_INLINE void add_squares(int64_t vector, Vec x) {
    Narrow halves[2];
    std::memcpy(halves, &x, sizeof(x));
#pragma GCC unroll 2
    for (int64_t k = 0; k < 2; ++k) {
      const Wide wide = __builtin_convertvector(halves[k], Wide);
      sums[vector * 2 + k] += wide * wide;
    }
  }
  double at(int64_t place) const {
    return sums[place / kDoubles][place % kDoubles];
  }
  double sum() const {
    double sum = 0;
    for (int64_t place = 0; place < kPlaces; ++place) sum += at(place);
    return sum;
  }
};

struct Sums {
  Places weights, direction;

  Squares squares() const { return {weights.sum(), direction.sum()}; }
};

// kPlaces elements, from element i on.
template <typename Grad>
ZEROTH_INLINE void sum_some(const Constants& c, const LambArrays& arrays, int64_t i, Sums& sums) {
#pragma GCC unroll 4
  for (int64_t k = 0; k < kVectors; ++k) {
    const int64_t at = i + k * kLanes;
    Vec s[2] = {load(arrays.states[0] + at), load(arrays.states[1] + at)};
    const Vec p = load(arrays.master + at);
    Lamb::moments(c, load(static_cast<const Grad*>(arrays.grad) + at), s);
    store(arrays.states[0] + at, s[0]);
    store(arrays.states[1] + at, s[1]);
    sums.weights.add_squares(k, p);
    sums.direction.add_squares(k, Lamb::direction(c, p, s));
  }
}

template <typename Copy>
ZEROTH_INLINE void step_some(const Constants& c, const LambArrays& arrays, int64_t i) {
#pragma GCC unroll 4
  for (int64_t k = 0; k < kVectors; ++k) {
    const int64_t at = i + k * kLanes;
    const Vec s[2] = {load(arrays.states[0] + at), load(arrays.states[1] + at)};
    Vec p = load(arrays.master + at);
    p = fma(spread(c.minus_rate), Lamb::direction(c, p, s), p);
    store(arrays.master + at, p);
    if constexpr (!std::is_same_v<Copy, float>) store(static_cast<Copy*>(arrays.copy) + at, p);
  }
}

// The last elements, fewer than kPlaces: the same operations on copies that are filled up.
template <typename Grad, typename Copy>
class Rest {
 public:
  Rest(const LambArrays& arrays, int64_t begin, int64_t count)
      : elements_(static_cast<size_t>(count)), from_(arrays) {
    from_.master += begin;
    for (float*& state : from_.states) state += begin;
    if (from_.grad != nullptr) from_.grad = static_cast<const Grad*>(from_.grad) + begin;
    if (from_.copy != nullptr) from_.copy = static_cast<Copy*>(from_.copy) + begin;
    take(master_, from_.master);
    for (int k = 0; k < 2; ++k) take(states_[k], from_.states[k]);
    if (from_.grad != nullptr) take(grad_, from_.grad);
  }

  LambArrays arrays() { return {master_, {states_[0], states_[1]}, grad_, copy_}; }
  void put_states() {
    for (int k = 0; k < 2; ++k) put(from_.states[k], states_[k]);
  }
  void put_weights() {
    put(from_.master, master_);
    if (from_.copy != nullptr) put(from_.copy, copy_);
  }

 private:
  template <typename E>
  void take(E (&to)[kPlaces], const void* from) {
    std::memcpy(to, from, elements_ * sizeof(E));
  }
  template <typename E>
  void put(void* to, const E (&from)[kPlaces]) {
    std::memcpy(to, from, elements_ * sizeof(E));
  }

  size_t elements_;
  LambArrays from_;
  float master_[kPlaces] = {}, states_[2][kPlaces] = {};
  Grad grad_[kPlaces] = {};
  Copy copy_[kPlaces] = {};
};

template <typename Grad>
Squares sum(const Constants& constants, const LambArrays& arrays, int64_t count) {
  const Constants c = constants;  // of this function alone: not reloaded after each store
  const LambArrays a = arrays;
  Sums sums;
  int64_t i = 0;
  for (; i + kPlaces <= count; i += kPlaces) sum_some<Grad>(c, a, i, sums);
  Squares all = sums.squares();
  if (i == count) return all;
  Rest<Grad, float> rest(a, i, count - i);
  Sums last;
  sum_some<Grad>(c, rest.arrays(), 0, last);
  rest.put_states();
  for (int64_t place = 0; place < count - i; ++place) {
    all.weights += last.weights.at(place);
    all.direction += last.direction.at(place);
  }
  return all;
}

template <typename Copy>
void step(const Constants& constants, const LambArrays& arrays, int64_t count) {
  const Constants c = constants;
  const LambArrays a = arrays;
  int64_t i = 0;
  for (; i + kPlaces <= count; i += kPlaces) step_some<Copy>(c, a, i);
  if (i == count) return;
  Rest<float, Copy> rest(a, i, count - i);
  step_some<Copy>(c, rest.arrays(), 0);
  rest.put_weights();
}

}  // namespace

namespace ZEROTH_ISA {
const LambKernels kLamb = {.sum = {sum<float>, sum<Bf16>, sum<Fp16>},
                           .step = {step<float>, step<Bf16>, step<Fp16>}};
}

static_assert(kFp32 == 0 && kBf16 == 1 && kFp16 == 2 && kFormats == 3);

}  // namespace zeroth::optim::kernel
