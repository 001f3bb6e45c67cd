// The training data of every row, by a formula that tools/make_equivalence_fixtures.py knows too.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/loader.h"
#include "tests/equivalence/row.h"

namespace zeroth::equivalence {

// How a global batch is dealt: micro-step, then rank, then sample.
struct Split {
  int64_t accumulation = 1;
  int rank = 0;
  int world_size = 1;
  Samples samples = Samples::kFull;
  bool masked = false;
  bool reversed = false;  // the samples of each micro-batch
  // A fault that a test plants: each token of a packed row sees all tokens before it.
  bool sees_neighbors = false;
};

// Step s runs samples s*24 .. s*24+23 under any split.
class SampleLoader final : public engine::DataLoader {
 public:
  explicit SampleLoader(const Split& split) : split_(split) {}
  model::MicroBatch next() override;

 private:
  std::vector<int64_t> next_samples();

  Split split_;
  int64_t drawn_ = 0;
};

}  // namespace zeroth::equivalence
