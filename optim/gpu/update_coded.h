// The work of one thread of a GPU on coded moments: eight elements of a code block, which is a
// warp's. The includer must define what update_formulas_coded.h requires, like that of
// update_four.h.
#pragma once

#include "optim/gpu/update_four.h"
#include "optim/update_formulas_coded.h"

namespace zeroth::optim::kernel {
namespace {

constexpr int kCodedElements = 8;

// CodedElements holds the exact new moments between the update and their codes.
struct CodedElements {
  Vec exact[kMaxStates][kCodedElements];
  Vec largest[kMaxStates];  // magnitude

  // Updates the elements from `i` on, as far as the arrays have any; the others are 0.
  ZEROTH_INLINE void update(const DeviceUpdate& update, int64_t i) {
    for (int k = 0; k < static_cast<int>(kMaxStates); ++k) {
      largest[k] = 0;
      for (int j = 0; j < kCodedElements; ++j) exact[k][j] = 0;
    }
    for (int j = 0; j < kCodedElements; j += kFour) {
      if (i + j < update.count) update_part(update, i + j, j);
    }
  }

  // Stores the codes, and, where the block begins, its maxima, given the block's largest
  // magnitudes.
  ZEROTH_INLINE void encode(const DeviceUpdate& update, int64_t i,
                            const Vec (&of_block)[kMaxStates]) {
    if (i >= update.count) return;
    Vec stored[kMaxStates], inverse[kMaxStates];
    for (int k = 0; k < static_cast<int>(kMaxStates); ++k) {
      stored[k] = stored_maximum(of_block[k]);
      inverse[k] = inverse_maximum(stored[k]);
      if (i % kCodeBlock == 0) update.maxima[k][i / kCodeBlock] = stored[k];
    }
    for (int j = 0; j < kCodedElements && i + j < update.count; j += kFour) {
      const int64_t at = i + j;
      const int left = update.count - at < kFour ? static_cast<int>(update.count - at) : kFour;
      const bool wide = update.aligned && left == kFour;
      Four<uint8_t> first, second;
      for (int n = 0; n < kFour; ++n) {
        first.at[n] = static_cast<uint8_t>(
            signed_codes(update.tables->tables[1], exact[0][j + n], inverse[0]));
        second.at[n] = static_cast<uint8_t>(
            unsigned_codes(update.tables->tables[0], exact[1][j + n], inverse[1]));
      }
      put_four(static_cast<uint8_t*>(update.states[0]) + at, left, wide, first);
      put_four(static_cast<uint8_t*>(update.states[1]) + at, left, wide, second);
    }
  }

 private:
  // Updates four elements, which become those from `j` on here.
  ZEROTH_INLINE void update_part(const DeviceUpdate& update, int64_t i, int j) {
    const int left = update.count - i < kFour ? static_cast<int>(update.count - i) : kFour;
    const bool wide = update.aligned && left == kFour;
    Vec p[kFour], g[kFour];
    load_four(static_cast<float*>(update.master) + i, left, wide, p);
    load_gradient(update, i, left, wide, g);
    Four<uint8_t> codes[kMaxStates];
    for (int k = 0; k < static_cast<int>(kMaxStates); ++k) {
      codes[k] = get_four(static_cast<const uint8_t*>(update.states[k]) + i, left, wide);
    }
    const Constants& constants =
        decays(update.step.decay_ranges, i) ? update.step.constants : update.step.undecayed;
    Four<float> masters;
    for (int n = 0; n < kFour; ++n) {
      Vec s[kMaxStates];
      for (int k = 0; k < static_cast<int>(kMaxStates); ++k) {
        s[k] =
            decoded(update.tables->tables[1 - k], codes[k].at[n], update.maxima[k][i / kCodeBlock]);
      }
      CodedAdamFormula::update(constants, g[n], p[n], s);
      masters.at[n] = p[n];
      if (n >= left) continue;
      for (int k = 0; k < static_cast<int>(kMaxStates); ++k) {
        exact[k][j + n] = s[k];
        largest[k] = larger(largest[k], magnitude(s[k]));
      }
    }
    put_four(static_cast<float*>(update.master) + i, left, wide, masters);
    put_copy(update, i, left, wide, p);
  }
};

}  // namespace
}  // namespace zeroth::optim::kernel
