// States of 8 bits: a code per element and the largest magnitude of each code block, as
// bitsandbytes stores the moments of its 8-bit optimizers. The table behind the codes, for the CPU
// and a GPU, and the conversions of one block. Plain types only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zeroth::optim::kernel {

// Elements whose codes share a maximum. A parameter's first block begins at its first element, and
// its last one may be shorter.
constexpr int64_t kCodeBlock = 256;

constexpr int64_t code_blocks(int64_t elements) {
  return (elements + kCodeBlock - 1) / kCodeBlock;
}

// A CodeTable holds the values of the codes, relative to the block's maximum (base/dynamic_map.h),
// and what finds the nearest code of a magnitude between 0 and 1: its rank among the values from 0
// on, which is the number of midpoints below it. At a midpoint, the smaller magnitude is nearest.
struct CodeTable {
  // The upper halves of fp32 numbers from 2^-23, which is below every midpoint, to 1.
  static constexpr uint32_t kFirstBits = 0x34000000, kLastBits = 0x3f800000;
  static constexpr size_t kIntervals = ((kLastBits - kFirstBits) >> 16) + 1;

  float values[256];
  // Between neighboring magnitudes, ascending; infinite behind the last one.
  float midpoints[256];
  // The midpoints below each interval, in which at most one more lies. A lookup reads four bytes.
  uint8_t ranks[kIntervals + 3];
};

// The tables of a signed moment, whose code kZeroCode is 0, and of an unsigned one.
struct CodeTables {
  static constexpr uint32_t kZeroCode = 127;
  CodeTable tables[2];  // unsigned, signed

  const CodeTable& of(bool is_signed) const { return tables[is_signed ? 1 : 0]; }
};

const CodeTables& code_tables();

// Returns whether a state has values of both signs: the first moment; the second has none.
constexpr bool is_signed_state(size_t state) {
  return state == 0;
}

// Returns what an element of a block is whose maximum is `maximum`.
float decode(uint8_t code, float maximum, bool is_signed);
// Stores the nearest code of each of a block's `count` values; returns the block's maximum, which
// is finite. An unsigned block has no negative value. The formulas of optim/update_formulas_coded.h
// give the same bits.
float encode(const float* block, int64_t count, uint8_t* codes, bool is_signed);

}  // namespace zeroth::optim::kernel
