// The training data of every row, by a formula that tools/make_equivalence_fixtures.py knows too.
#pragma once

#include <cstdint>

#include "engine/loader.h"

namespace zeroth::equivalence {

// How a global batch is dealt: micro-step, then rank, then row.
struct Split {
  int64_t accumulation = 1;
  int rank = 0;
  int world_size = 1;
  bool masked = false;
  bool reversed = false;  // the rows of each micro-batch
};

// Step s runs samples s*24 .. s*24+23 of 32 tokens under any split.
class SampleLoader final : public engine::DataLoader {
 public:
  explicit SampleLoader(const Split& split) : split_(split) {}
  model::MicroBatch next() override;

 private:
  Split split_;
  int64_t drawn_ = 0;
};

}  // namespace zeroth::equivalence
