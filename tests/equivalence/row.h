// One way to train a tiny checkpoint, mostly for 20 steps: a row of the table of strategies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/mesh_layout.h"
#include "configs/config.h"

namespace zeroth::equivalence {

inline constexpr int64_t kSteps = 20;
inline constexpr int64_t kGlobalBatch = 24;         // samples
inline constexpr int64_t kSamplesPerPackedRow = 2;  // on average

// What is trained with: AdamW that decays everything, or a run of its own in the fixtures.
enum class Training {
  kAdamW,
  kAdamL2,  // decay as part of the gradient
  kLion,
  kSgd,
  kAdagrad,
  kLamb,
  kNoDecay,      // AdamW that leaves norm weights and biases out of its decay
  kOneCycle,     // AdamW whose rate and first beta cycle
  kBf16Masters,  // AdamW whose masters rest in bf16
  kBf16States,   // and its moments too
  kAdamW8bit,    // AdamW whose moments are codes, without a bound for parameters
  kLora,         // AdamW on adapters over a frozen base, from those of the fixtures
  kQlora,        // the same over a base in NF4
  kQloraDouble,  // and with double quantization
};

// Whether adapters are trained in place of the model.
constexpr bool trains_adapters(Training training) {
  return training >= Training::kLora;
}

// Samples that are rows of their own, or share them.
enum class Samples {
  kFull,   // of 32 tokens
  kShort,  // of 1 to 13 tokens
  kPacked  // the short ones, one to three in a row of at most 32 tokens
};

// What changes roundings and nothing else.
struct Rounding {
  std::string product;         // that is forced (base/machine/cpu.h); empty: this processor's
  bool reversed = false;       // the samples of a micro-batch are in the reverse order
  uint64_t moved_weights = 0;  // a seed: first weights are moved by one unit in the last place
};

struct Row {
  // Everything is sharded in stage 3 unless the row says otherwise: the tiny models lie wholly
  // under the default threshold.
  configs::ZeroConfig zero = {.param_persistence_threshold_elements = 0};
  configs::Precision precision = configs::Precision::kFp32;
  int64_t accumulation = 1;
  configs::RecomputeConfig recompute = {};
  configs::PipelineConfig pipeline = {};
  int ranks = 1;                // that see different samples
  int tensor = 1;               // for each of these so many that share every layer
  int machines = 1;             // that the ranks are told to be on
  std::string model = "llama";  // a folder of tests/model/fixtures
  Samples samples = Samples::kFull;
  bool masked = false;  // some targets are not trained, more in some samples than in others
  double lr = 1e-3;
  double clipping = 1.0;  // the references clip to 1
  bool cosine = false;    // WarmupCosineLR instead of a constant rate
  Training training = Training::kAdamW;
  // Mean of the means of four micro-batches, over ranks and accumulation.
  bool micro_batch_mean = false;
  configs::GradientConfig gradients = {};
  double dropout = 0;  // every probability that the model's family has
  Rounding rounding = {};
  int64_t steps = kSteps;  // fewer are compared with each other alone
};

// Names everything that differs from a Row{} besides what every row has.
std::string name_of(const Row& row);
// "adamw", "lion": also the name of its run in the fixtures.
std::string name_of(Training training);

// Lets optimizer states rest there, and parameters, which then are all outside of memory.
void offload(Row& row, configs::OffloadDevice optimizer, configs::OffloadDevice parameters,
             const std::string& directory);

configs::Config config_of(const Row& row);
comm::MeshShape mesh_shape_of(const Row& row);

// The row whose bits this one must have: everything else is kept, nothing is recomputed, parameters
// rest and travel as by default, and one stage runs one micro-batch after the other unless the
// schedule sums in another order: a tied weight's uses, or micro-batches before ranks where each
// one is reduced.
Row plain(const Row& row);

// The same training on one rank at stage 0, in one micro-batch if the loss does not depend on it,
// with each sample in a row of its own, by this processor's products.
Row single(const Row& row);

// `reference`, a row that single() returned, with all roundings that bounds are measured by.
std::vector<Row> perturbed_runs(const Row& reference);

}  // namespace zeroth::equivalence
