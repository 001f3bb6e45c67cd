// The constants of a step that an update's kernels on the CPU and on a GPU need. Plain types only:
// this is compiled for instruction sets that the processor may not have, and for GPUs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zeroth::configs {
struct OptimizerConfig;
}

namespace zeroth::optim {

struct UpdateStep;

namespace kernel {

enum Formula : size_t {
  kAdam,
  kLion,
  kAdagrad,
  kSgd,
  kSgdMomentum,
  kNumFormulas,  // of independent elements
  kCodedAdam,    // of code blocks (optim/coded_states.h)
  kNoFormula
};

constexpr size_t kMaxStates = 2;               // of an element
constexpr size_t kNumArrays = 1 + kMaxStates;  // the master, then the states

enum Format : size_t { kFp32, kBf16, kFp16, kNumFormats };  // of a gradient or a copy

// Constants are the factors of one step, by their place in the formulas of cpu_update.h.
struct Constants {
  float factor = 1, divisor = 1;  // g = wire * factor / divisor: one of the two is 1
  float decay = 0;                // of g = fma(p, decay, g)
  float keep = 1;                 // 1 - lr * decay
  float minus_rate = 0;           // in the formula's last line
  float magnitude = 0;            // Lion: lr
  float keep_first = 0;           // m * this (Lion, Lamb, 8-bit Adam: beta1), b * this
  float add_first = 0;            // w or w - 1, (1 - beta1) * f, 1 - dampening, 1 - beta1
  float keep_second = 0;          // v * this, Lion: m * this
  float add_second = 0;           // 1 - beta2, Lion: times f
  float root_divisor = 1;         // sqrt(1 - beta2^n)
  float eps = 0;
  bool eps_inside = false;     // Lamb: eps is inside the root
  bool from_gradient = false;  // Adam: w >= 0.5; SGD: update 1
  bool nesterov = false;
};

// Returns the update's number n in 1 - beta^n. Without bias correction it is infinite, which makes
// that expression 1.
double bias_correction_step(const configs::OptimizerConfig& config, int64_t update);

Constants make_constants(const configs::OptimizerConfig& config, const UpdateStep& step);

// OptimizerTraits holds what rules and kernels have to know of an optimizer: its row of the table
// in update_constants.cpp.
struct OptimizerTraits {
  Formula formula;    // kNoFormula for Lamb, whose two passes have loops of their own
  size_t num_states;  // of each element
  const char* state_names[kMaxStates];  // in checkpoints
  bool decouples_decay;  // false: the decay is a part of the gradient, or of Lamb's direction
  void (*set_constants)(const configs::OptimizerConfig& config, const UpdateStep& step,
                        Constants& constants);
  double configs::OptimizerConfig::*initial_state = nullptr;  // null: 0
  // Names, in checkpoints, of the maxima of code blocks, one for each state; null: states are not
  // coded.
  const char* maxima_names[kMaxStates] = {};

  bool is_coded() const { return maxima_names[0] != nullptr; }
};
const OptimizerTraits& optimizer_traits(const configs::OptimizerConfig& config);

// Returns the optimizer's formula of one pass. Throws an InternalError for Lamb.
Formula select_formula(const configs::OptimizerConfig& config);
size_t num_states(Formula formula);

// ElementOffsets gives the global offsets of an array's elements, which seed the rounding to bf16.
// They are consecutive, except for a gap at the end of each row: an array may hold some columns of
// a matrix.
struct ElementOffsets {
  static constexpr int64_t kEndless = int64_t{1} << 61;
  int64_t first = 0;          // of the first element
  int64_t left = kEndless;    // elements up to the first gap, at least one
  int64_t length = kEndless;  // elements from a gap to the next one
  int64_t gap = 0;            // offsets that are skipped at each gap
};

// A RoundingKey seeds the random numbers that round one array to bf16 in one update; see
// random_bits() in update_formulas.h.
struct RoundingKey {
  uint32_t first = 0, second = 0;
};

// DecayRanges mark elements whose weights do not decay. Ranges follow each other from the first
// element on; each except the last is a multiple of the four elements that a thread updates.
constexpr int kMaxDecayRanges = 16;
struct DecayRanges {
  int count = 0;           // 0: all decay
  uint32_t undecayed = 0;  // bit k: range k
  int64_t ends[kMaxDecayRanges] = {};
};

// Sets the keys for the elements whose offsets share the upper 32 bits of `element`.
void set_rounding_keys(const UpdateStep& step, int64_t element, RoundingKey (&keys)[kNumArrays]);

}  // namespace kernel
}  // namespace zeroth::optim
