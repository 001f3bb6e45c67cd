// This file is compiled once per instruction set, which ZEROTH_ISA names (CMakeLists.txt).
#include "optim/cpu/cpu_kernels.h"

#include <type_traits>

#include "optim/cpu/coded_loops.h"
#include "optim/cpu/cpu_lanes.h"
#include "optim/cpu/lamb_loops.h"
#include "optim/cpu/norm_loops.h"
#include "optim/update_formulas.h"

namespace zeroth::optim::kernel {
namespace {

template <typename Rule, typename Grad, typename Master, typename State, typename Copy>
ZEROTH_INLINE void update_vector(const Constants& c, const UpdateArrays& arrays, int64_t i,
                                 Ints offsets) {
  auto* master = static_cast<Master*>(arrays.master) + i;
  Vec s[kMaxStates] = {};
#pragma GCC unroll 2  // in registers
  for (int k = 0; k < Rule::kNumStates; ++k) s[k] = load(static_cast<State*>(arrays.states[k]) + i);
  Vec p = load(master);
  Rule::update(c, load(static_cast<const Grad*>(arrays.grad) + i), p, s);
#pragma GCC unroll 2
  for (int k = 0; k < Rule::kNumStates; ++k) {
    store_rounded(static_cast<State*>(arrays.states[k]) + i, s[k], arrays.keys[k + 1], offsets);
  }
  store_rounded(master, p, arrays.keys[0], offsets);
  if constexpr (!std::is_same_v<Copy, None>) {
    auto* copy = static_cast<Copy*>(arrays.copy) + i;
    arrays.non_temporal ? stream(copy, p) : store(copy, p);
  }
}

// Returns the offsets of a vector's elements from `i` on, wherever rows end.
ZEROTH_INLINE Ints offsets_at(OffsetCounter& counter, int64_t i) {
  Ints offsets;
  for (int64_t k = 0; k < kLanes; ++k) offsets[k] = counter.at(i + k);
  return offsets;
}

// Updates the last elements, fewer than a vector: the same operations on a padded copy.
template <typename Rule, typename Grad, typename Master, typename State, typename Copy>
void update_remainder(const Constants& c, const UpdateArrays& arrays, int64_t begin, int64_t count,
                      Ints offsets) {
  Master master[kLanes] = {};
  State states[kMaxStates][kLanes] = {};
  Grad grad[kLanes] = {};
  Copy copy[kLanes] = {};
  const ArrayPart part{begin, count};
  part.read(arrays.master, master);
  part.read(arrays.grad, grad);
  for (int k = 0; k < Rule::kNumStates; ++k) part.read(arrays.states[k], states[k]);
  UpdateArrays padded = arrays;
  padded.master = master;
  padded.grad = grad;
  padded.copy = copy;
  padded.non_temporal = false;
  for (size_t k = 0; k < kMaxStates; ++k) padded.states[k] = states[k];
  update_vector<Rule, Grad, Master, State, Copy>(c, padded, 0, offsets);
  part.write(arrays.master, master);
  for (int k = 0; k < Rule::kNumStates; ++k) part.write(arrays.states[k], states[k]);
  if constexpr (!std::is_same_v<Copy, None>) part.write(arrays.copy, copy);
}

template <typename Rule, typename Grad, typename Master, typename State, typename Copy>
void update(const Constants& constants, const UpdateArrays& arrays, int64_t count) {
  const Constants c = constants;  // local to this function, so it is not reloaded after each store
  const UpdateArrays a = arrays;
  int64_t i = 0;
  OffsetCounter counter(a.offsets, 0);
  while (i + kLanes <= count) {
    const uint32_t first = counter.at(i);
    const int64_t end = counter.end < count ? counter.end : count;
    const uint32_t shift = first - static_cast<uint32_t>(i);
    for (; i + kLanes <= end; i += kLanes) {
      update_vector<Rule, Grad, Master, State, Copy>(c, a, i,
                                                     counted(shift + static_cast<uint32_t>(i)));
    }
    if (i == end || i + kLanes > count) continue;
    update_vector<Rule, Grad, Master, State, Copy>(c, a, i, offsets_at(counter, i));
    i += kLanes;
  }
  if (i < count)
    update_remainder<Rule, Grad, Master, State, Copy>(c, a, i, count - i, offsets_at(counter, i));
  if (a.non_temporal) store_fence();
}

template <typename Rule, typename Grad>
constexpr void fill_table(Kernel (&by_result)[kNumOutputFormats]) {
  by_result[kNoCopy] = update<Rule, Grad, float, float, None>;
  by_result[kBf16Copy] = update<Rule, Grad, float, float, Bf16>;
  by_result[kFp16Copy] = update<Rule, Grad, float, float, Fp16>;
  if constexpr (!std::is_same_v<Grad, Fp16>) {
    by_result[kBf16Master] = update<Rule, Grad, Bf16, float, None>;
    by_result[kAllBf16] = update<Rule, Grad, Bf16, Bf16, None>;
  }
}

template <typename Grad>
constexpr void fill_coded(Kernel (&by_result)[kNumOutputFormats]) {
  by_result[kNoCopy] = update_coded<Grad, None>;
  by_result[kBf16Copy] = update_coded<Grad, Bf16>;
  by_result[kFp16Copy] = update_coded<Grad, Fp16>;
}

template <typename Rule>
constexpr void fill_table(UpdateKernels& by_gradient) {
  fill_table<Rule, float>(by_gradient[kFp32]);
  fill_table<Rule, Bf16>(by_gradient[kBf16]);
  fill_table<Rule, Fp16>(by_gradient[kFp16]);
}

constexpr CpuKernels make_kernels() {
  CpuKernels kernels = {.update = {},
                        .update_coded = {},
                        .lamb_sum = {lamb_sum<float>, lamb_sum<Bf16>, lamb_sum<Fp16>},
                        .lamb_step = {lamb_step<float>, lamb_step<Bf16>, lamb_step<Fp16>},
                        .sum_chunk = {sum_chunk<float>, sum_chunk<Bf16>, sum_chunk<Fp16>}};
  fill_table<AdamFormula>(kernels.update[kAdam]);
  fill_table<LionFormula>(kernels.update[kLion]);
  fill_table<AdagradFormula>(kernels.update[kAdagrad]);
  fill_table<SgdFormula>(kernels.update[kSgd]);
  fill_table<SgdMomentumFormula>(kernels.update[kSgdMomentum]);
  fill_coded<float>(kernels.update_coded[kFp32]);
  fill_coded<Bf16>(kernels.update_coded[kBf16]);
  fill_coded<Fp16>(kernels.update_coded[kFp16]);
  return kernels;
}

constexpr bool has_each_formula(const CpuKernels& kernels) {
  for (const UpdateKernels& by_gradient : kernels.update) {
    if (by_gradient[kFp32][kNoCopy] == nullptr) return false;
  }
  return true;
}
static_assert(has_each_formula(make_kernels()));
static_assert(kFp32 == 0 && kBf16 == 1 && kFp16 == 2 && kNumFormats == 3);

}  // namespace

namespace ZEROTH_ISA {
constinit const CpuKernels kKernels = make_kernels();
}

}  // namespace zeroth::optim::kernel
