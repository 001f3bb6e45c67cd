// The work of one thread of a GPU: the update of four elements, whose loads and stores are as wide
// as a thread's can be. The includer must define what update_formulas.h requires: the lanes of
// gpu/lanes.cuh, or those of tests/support/scalar_lanes.h in a test on the CPU.
#pragma once

#include "optim/gpu/device_update.h"
#include "optim/update_formulas.h"

namespace zeroth::optim::kernel {
namespace {

constexpr int kFour = 4;

template <typename T>
struct alignas(kFour * sizeof(T)) Four {
  T at[kFour];
};

// Returns four elements. `left` is the number of elements from here on; `wide` selects one access
// for all four.
template <typename T>
ZEROTH_INLINE Four<T> get_four(const T* from, int left, bool wide) {
  Four<T> four = {};
  if (wide) {
    four = *reinterpret_cast<const Four<T>*>(from);
  } else {
    for (int k = 0; k < kFour; ++k) {
      if (k < left) four.at[k] = from[k];
    }
  }
  return four;
}

template <typename T>
ZEROTH_INLINE void load_four(const T* from, int left, bool wide, Vec (&to)[kFour]) {
  const Four<T> four = get_four(from, left, wide);
  for (int k = 0; k < kFour; ++k) to[k] = load(&four.at[k]);
}

template <typename T>
ZEROTH_INLINE void put_four(T* to, int left, bool wide, const Four<T>& four) {
  if (wide) {
    *reinterpret_cast<Four<T>*>(to) = four;
  } else {
    for (int k = 0; k < kFour; ++k) {
      if (k < left) to[k] = four.at[k];
    }
  }
}

ZEROTH_INLINE void load_gradient(const DeviceUpdate& update, int64_t i, int left, bool wide,
                                 Vec (&g)[kFour]) {
  if (update.grad_format == kFp32) {
    load_four(static_cast<const float*>(update.grad) + i, left, wide, g);
  } else if (update.grad_format == kBf16) {
    load_four(static_cast<const Bf16*>(update.grad) + i, left, wide, g);
  } else {
    load_four(static_cast<const Fp16*>(update.grad) + i, left, wide, g);
  }
}

// Stores the copy of four masters p, if there is one.
ZEROTH_INLINE void put_copy(const DeviceUpdate& update, int64_t i, int left, bool wide,
                            const Vec (&p)[kFour]) {
  if (update.copy == nullptr) return;
  const auto put = [&](auto* copy, auto four) {
    for (int j = 0; j < kFour; ++j) store(&four.at[j], p[j]);
    put_four(copy + i, left, wide, four);
  };
  if (update.copy_format == kBf16) {
    put(static_cast<Bf16*>(update.copy), Four<Bf16>());
  } else {
    put(static_cast<Fp16*>(update.copy), Four<Fp16>());
  }
}

// Returns whether the four elements from `i` on decay.
ZEROTH_INLINE bool decays(const DecayRanges& decay_ranges, int64_t i) {
  int k = 0;
  while (k + 1 < decay_ranges.count && i >= decay_ranges.ends[k]) ++k;
  return (decay_ranges.undecayed >> k & 1) == 0;
}

template <typename Rule, typename Master, typename State>
ZEROTH_INLINE void update_four(const DeviceUpdate& update, int64_t i) {
  const int left = update.count - i < kFour ? static_cast<int>(update.count - i) : kFour;
  const bool wide = update.aligned && left == kFour;
  Master* const master = static_cast<Master*>(update.master) + i;
  Vec p[kFour], g[kFour], s[kMaxStates][kFour] = {};
  load_four(master, left, wide, p);
  for (int k = 0; k < Rule::kNumStates; ++k) {
    load_four(static_cast<const State*>(update.states[k]) + i, left, wide, s[k]);
  }
  load_gradient(update, i, left, wide, g);

  const Constants& constants =
      decays(update.step.decay_ranges, i) ? update.step.constants : update.step.undecayed;
  Four<Master> masters;
  Four<State> states[kMaxStates];
  OffsetCounter counter(update.step.offsets, i);
  for (int j = 0; j < kFour; ++j) {
    Vec element_states[kMaxStates] = {};
    for (int k = 0; k < Rule::kNumStates; ++k) element_states[k] = s[k][j];
    Rule::update(constants, g[j], p[j], element_states);
    const Ints offset = counter.at(i + j);
    store_rounded(&masters.at[j], p[j], update.step.keys[0], offset);
    for (int k = 0; k < Rule::kNumStates; ++k) {
      store_rounded(&states[k].at[j], element_states[k], update.step.keys[k + 1], offset);
    }
  }
  put_four(master, left, wide, masters);
  for (int k = 0; k < Rule::kNumStates; ++k) {
    put_four(static_cast<State*>(update.states[k]) + i, left, wide, states[k]);
  }
  put_copy(update, i, left, wide, p);
}

}  // namespace
}  // namespace zeroth::optim::kernel
