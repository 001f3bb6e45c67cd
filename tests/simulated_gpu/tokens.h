// Samples for a model of 64 tokens.
#pragma once

#include <torch/torch.h>

#include "engine/loader.h"
#include "model/micro_batch.h"

namespace zeroth::simulated {

// Four rows of 16 tokens, of which every third has no target, or each has one.
class Tokens final : public engine::DataLoader {
 public:
  explicit Tokens(bool masked) : masked_(masked) {}
  model::MicroBatch next() override {
    model::MicroBatch batch;
    batch.tokens = torch::randint(0, 64, {4, 16}, torch::kLong);
    batch.targets = batch.tokens.roll(-1, 1);
    if (masked_) batch.targets.slice(1, 0, 16, 3).fill_(model::kIgnoreIndex);
    batch.sample_seeds.assign(4, 0);
    batch.samples.assign(4, 0);
    return batch;
  }

 private:
  bool masked_;
};

}  // namespace zeroth::simulated
