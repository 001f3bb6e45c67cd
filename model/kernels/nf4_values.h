// The 16 numbers of NF4 (QLoRA, arXiv 2305.14314, appendix E) with the bits of bitsandbytes. This
// header includes no torch: loops of every instruction set and of GPUs share it.
#pragma once

#include <cstdint>

namespace zeroth::model {

inline constexpr int64_t kNf4Block = 64;        // weights that share a maximum
inline constexpr int64_t kNestedBlock = 256;    // maxima that share one, with double quantization
inline constexpr float kNf4MinAbsmax = 1e-38F;  // a smaller maximum counts as this one

// By code, ascending.
inline constexpr float kNf4Values[16] = {
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};

// Returns the number of blocks of a weight, and of the groups of its blocks.
constexpr int64_t nf4_blocks(int64_t numel) {
  return (numel + kNf4Block - 1) / kNf4Block;
}
constexpr int64_t nested_groups(int64_t blocks) {
  return (blocks + kNestedBlock - 1) / kNestedBlock;
}

// Returns the midpoint of a code's number and the next one's. A number's code is the count of
// midpoints below it: a tie goes to the smaller code.
constexpr float nf4_midpoint(int code) {
  return (kNf4Values[code] + kNf4Values[code + 1]) / 2;
}

}  // namespace zeroth::model
