// One way to train a tiny checkpoint for 20 steps: a row of the table of strategies.
#pragma once

#include <cstdint>
#include <string>

#include "configs/config.h"

namespace zeroth::equivalence {

inline constexpr int64_t kSteps = 20;
inline constexpr int64_t kGlobalBatch = 24;

struct Row {
  // Everything is sharded in stage 3 unless the row says otherwise: the tiny models lie wholly
  // under the default threshold.
  configs::ZeroConfig zero = {.param_persistence_threshold_elements = 0};
  configs::Precision precision = configs::Precision::kFp32;
  int64_t accumulation = 1;
  configs::RecomputeConfig recompute = {};
  int ranks = 1;
  std::string model = "llama";  // a folder of tests/model/fixtures
  bool masked = false;          // some targets are not trained, more in some rows than in others
  double lr = 1e-3;
  bool cosine = false;  // WarmupCosineLR instead of a constant rate
};

// Names everything that differs from a Row{} besides what every row has.
std::string name_of(const Row& row);

configs::Config config_of(const Row& row);

// The row whose bits this one must have: everything else is kept, nothing is recomputed, and
// parameters rest and travel as by default.
Row plain(const Row& row);

// The same training on one rank at stage 0 in one micro-batch.
Row single(const Row& row);

}  // namespace zeroth::equivalence
