// Compiled once per instruction set, which ZEROTH_ISA names (CMakeLists.txt).
#include "optim/host_kernels.h"

#include <cstring>
#include <type_traits>

#if defined(__AVX512F__)
#include "optim/host_lanes_avx512.h"
#elif defined(__AVX2__)
#include "optim/host_lanes_avx2.h"
#else
#include "optim/host_lanes_plain.h"
#endif

namespace zeroth::optim::host {
namespace {

#define ZEROTH_INLINE [[gnu::always_inline]] inline

struct None {};  // type of a copy that is not wanted

// The formulas of host_update.h: p and states s are updated with the wire's gradient.
ZEROTH_INLINE Vec scaled(const Constants& c, Vec wire) {
  return wire * spread(c.factor) / spread(c.divisor);
}

ZEROTH_INLINE Vec decayed(const Constants& c, Vec p, Vec g) {
  return c.decay == 0 ? g : fma(p, spread(c.decay), g);
}

struct Adam {
  static constexpr int kStates = 2;
  ZEROTH_INLINE static void update(const Constants& c, Vec wire, Vec& p, Vec (&s)[2]) {
    const Vec g = decayed(c, p, scaled(c, wire));
    s[0] = fma(spread(c.add_first), g - s[0], c.from_gradient ? g : s[0]);
    s[1] = fma(spread(c.add_second) * g, g, s[1] * spread(c.keep_second));
    const Vec divisor = root(s[1]) / spread(c.root_divisor) + spread(c.eps);
    p = p * spread(c.keep) + spread(c.minus_rate) * s[0] / divisor;
  }
};

struct Lion {
  static constexpr int kStates = 1;
  ZEROTH_INLINE static void update(const Constants& c, Vec wire, Vec& p, Vec (&s)[2]) {
    const Vec direction = fma(wire, spread(c.add_first), s[0] * spread(c.keep_first));
    p = p * spread(c.keep) - with_sign(spread(c.magnitude), direction);
    s[0] = fma(wire, spread(c.add_second), s[0] * spread(c.keep_second));
  }
};

struct Adagrad {
  static constexpr int kStates = 1;
  ZEROTH_INLINE static void update(const Constants& c, Vec wire, Vec& p, Vec (&s)[2]) {
    const Vec g = decayed(c, p, scaled(c, wire));
    s[0] = fma(g, g, s[0]);
    p = p + spread(c.minus_rate) * g / (root(s[0]) + spread(c.eps));
  }
};

struct Sgd {
  static constexpr int kStates = 0;
  ZEROTH_INLINE static void update(const Constants& c, Vec wire, Vec& p, Vec (&)[2]) {
    p = fma(decayed(c, p, scaled(c, wire)), spread(c.minus_rate), p);
  }
};

struct SgdMomentum {
  static constexpr int kStates = 1;
  ZEROTH_INLINE static void update(const Constants& c, Vec wire, Vec& p, Vec (&s)[2]) {
    const Vec g = decayed(c, p, scaled(c, wire));
    s[0] = c.from_gradient ? g : fma(g, spread(c.add_first), s[0] * spread(c.keep_first));
    p = fma(c.nesterov ? fma(s[0], spread(c.keep_first), g) : s[0], spread(c.minus_rate), p);
  }
};

template <typename Rule, typename Grad, typename Copy>
ZEROTH_INLINE void update_vector(const Constants& c, const Arrays& arrays, int64_t i) {
  Vec s[2] = {};
  for (int k = 0; k < Rule::kStates; ++k) s[k] = load(arrays.states[k] + i);
  Vec p = load(arrays.master + i);
  Rule::update(c, load(static_cast<const Grad*>(arrays.grad) + i), p, s);
  for (int k = 0; k < Rule::kStates; ++k) store(arrays.states[k] + i, s[k]);
  store(arrays.master + i, p);
  if constexpr (!std::is_same_v<Copy, None>) {
    Copy* copy = static_cast<Copy*>(arrays.copy) + i;
    arrays.past_caches ? stream(copy, p) : store(copy, p);
  }
}

// The last elements, short of a vector: the same operations on a copy that is filled up.
template <typename Rule, typename Grad, typename Copy>
void update_rest(const Constants& c, const Arrays& arrays, int64_t begin, int64_t count) {
  float master[kLanes] = {}, states[2][kLanes] = {};
  Grad grad[kLanes] = {};
  Copy copy[kLanes] = {};
  const auto elements = static_cast<size_t>(count);
  std::memcpy(master, arrays.master + begin, elements * sizeof(float));
  std::memcpy(grad, static_cast<const Grad*>(arrays.grad) + begin, elements * sizeof(Grad));
  for (int k = 0; k < Rule::kStates; ++k) {
    std::memcpy(states[k], arrays.states[k] + begin, elements * sizeof(float));
  }
  const Arrays filled = {master, {states[0], states[1]}, grad, copy, /*past_caches=*/false};
  update_vector<Rule, Grad, Copy>(c, filled, 0);
  std::memcpy(arrays.master + begin, master, elements * sizeof(float));
  for (int k = 0; k < Rule::kStates; ++k) {
    std::memcpy(arrays.states[k] + begin, states[k], elements * sizeof(float));
  }
  if constexpr (!std::is_same_v<Copy, None>) {
    std::memcpy(static_cast<Copy*>(arrays.copy) + begin, copy, elements * sizeof(Copy));
  }
}

template <typename Rule, typename Grad, typename Copy>
void update(const Constants& constants, const Arrays& arrays, int64_t count) {
  const Constants c = constants;  // of this function alone: not reloaded after each store
  const Arrays a = arrays;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) update_vector<Rule, Grad, Copy>(c, a, i);
  if (i < count) update_rest<Rule, Grad, Copy>(c, a, i, count - i);
  if (a.past_caches) end_stream();
}

template <typename Rule, typename Grad>
constexpr void fill(Kernel (&by_copy)[kFormats]) {
  by_copy[kFp32] = update<Rule, Grad, None>;
  by_copy[kBf16] = update<Rule, Grad, Bf16>;
  by_copy[kFp16] = update<Rule, Grad, Fp16>;
}

template <typename Rule>
constexpr void fill(Kernel (&by_gradient)[kFormats][kFormats]) {
  fill<Rule, float>(by_gradient[kFp32]);
  fill<Rule, Bf16>(by_gradient[kBf16]);
  fill<Rule, Fp16>(by_gradient[kFp16]);
}

constexpr Kernels all_kernels() {
  Kernels kernels = {};
  fill<Adam>(kernels.of[kAdam]);
  fill<Lion>(kernels.of[kLion]);
  fill<Adagrad>(kernels.of[kAdagrad]);
  fill<Sgd>(kernels.of[kSgd]);
  fill<SgdMomentum>(kernels.of[kSgdMomentum]);
  return kernels;
}

constexpr Kernels kAll = all_kernels();

#undef ZEROTH_INLINE

}  // namespace

namespace ZEROTH_ISA {
const Kernels kKernels = kAll;
}

}  // namespace zeroth::optim::host
