// The loop of the update of coded moments; see CpuKernels in cpu_kernels.h. Included by
// cpu_kernels.cpp.
#pragma once

#include <type_traits>

#include "optim/cpu/cpu_kernels.h"
#include "optim/cpu/cpu_lanes.h"
#include "optim/update_formulas_coded.h"

namespace zeroth::optim::kernel {
namespace {

// The arrays of one full block.
template <typename Grad, typename Copy>
struct CodeBlock {
  float* master;
  const Grad* grad;
  Copy* copy;  // null: none
  uint8_t* codes[kMaxStates];
  float* maxima[kMaxStates];
  bool non_temporal;
};

ZEROTH_INLINE float largest_lane(Vec x) {
  float largest = 0;
  for (int64_t i = 0; i < kLanes; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

template <typename Grad, typename Copy>
ZEROTH_INLINE void update_block(const Constants& c, const CodeTables& tables,
                                const CodeBlock<Grad, Copy>& block) {
  alignas(64) float exact[kMaxStates][kCodeBlock];
  const Vec maxima[kMaxStates] = {spread(*block.maxima[0]), spread(*block.maxima[1])};
  Vec largest[kMaxStates] = {};
  for (int64_t i = 0; i < kCodeBlock; i += kLanes) {
    Vec s[kMaxStates] = {
        decoded(tables.of(/*is_signed=*/true), load_codes(block.codes[0] + i), maxima[0]),
        decoded(tables.of(/*is_signed=*/false), load_codes(block.codes[1] + i), maxima[1])};
    Vec p = load(block.master + i);
    CodedAdamFormula::update(c, load(block.grad + i), p, s);
#pragma GCC unroll 2
    for (size_t k = 0; k < kMaxStates; ++k) {
      store(exact[k] + i, s[k]);
      largest[k] = larger(largest[k], magnitude(s[k]));
    }
    store(block.master + i, p);
    if constexpr (!std::is_same_v<Copy, None>) {
      block.non_temporal ? stream(block.copy + i, p) : store(block.copy + i, p);
    }
  }
  float inverse[kMaxStates];
  for (size_t k = 0; k < kMaxStates; ++k) {
    *block.maxima[k] = stored_maximum(largest_lane(largest[k]));
    inverse[k] = inverse_maximum(*block.maxima[k]);
  }
  for (int64_t i = 0; i < kCodeBlock; i += kLanes) {
    store_codes(block.codes[0] + i, signed_codes(tables.of(true), load(exact[0] + i), inverse[0]));
    store_codes(block.codes[1] + i,
                unsigned_codes(tables.of(false), load(exact[1] + i), inverse[1]));
  }
}

// Updates a short block: the same operations on a padded copy, whose padding stays 0.
template <typename Grad, typename Copy>
void update_short_block(const Constants& c, const CodeTables& tables,
                        const CodeBlock<Grad, Copy>& block, int64_t count) {
  float master[kCodeBlock] = {};
  Grad grad[kCodeBlock] = {};
  Copy copy[kCodeBlock] = {};
  uint8_t codes[kMaxStates][kCodeBlock] = {};
  for (uint8_t& code : codes[0]) code = CodeTables::kZeroCode;
  const ArrayPart part{0, count};
  part.read(block.master, master);
  part.read(block.grad, grad);
  for (size_t k = 0; k < kMaxStates; ++k) part.read(block.codes[k], codes[k]);
  CodeBlock<Grad, Copy> padded = block;
  padded.master = master;
  padded.grad = grad;
  padded.copy = copy;
  padded.non_temporal = false;
  for (size_t k = 0; k < kMaxStates; ++k) padded.codes[k] = codes[k];
  update_block(c, tables, padded);
  part.write(block.master, master);
  for (size_t k = 0; k < kMaxStates; ++k) part.write(block.codes[k], codes[k]);
  if constexpr (!std::is_same_v<Copy, None>) part.write(block.copy, copy);
}

template <typename Grad, typename Copy>
void update_coded(const Constants& constants, const UpdateArrays& arrays, int64_t count) {
  const Constants c = constants;
  for (int64_t i = 0; i < count; i += kCodeBlock) {
    const CodeBlock<Grad, Copy> block = {
        .master = static_cast<float*>(arrays.master) + i,
        .grad = static_cast<const Grad*>(arrays.grad) + i,
        .copy = arrays.copy == nullptr ? nullptr : static_cast<Copy*>(arrays.copy) + i,
        .codes = {static_cast<uint8_t*>(arrays.states[0]) + i,
                  static_cast<uint8_t*>(arrays.states[1]) + i},
        .maxima = {arrays.maxima[0] + i / kCodeBlock, arrays.maxima[1] + i / kCodeBlock},
        .non_temporal = arrays.non_temporal};
    if (i + kCodeBlock <= count) {
      update_block(c, *arrays.tables, block);
    } else {
      update_short_block(c, *arrays.tables, block, count - i);
    }
  }
  if (arrays.non_temporal) store_fence();
}

}  // namespace
}  // namespace zeroth::optim::kernel
