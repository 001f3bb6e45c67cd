// Configurations and blocks that the engine's tests share.
#pragma once

#include <cmath>

#include "configs/config.h"
#include "model/block.h"

namespace zeroth::engine {

inline configs::Config chain_config(int64_t micro_batch, int64_t accumulation, int ranks) {
  configs::Config config;
  config.batch = {micro_batch * accumulation * ranks, micro_batch, accumulation};
  config.optimizer.lr = 0.02;
  config.zero.param_persistence_threshold_elements = 0;
  return config;
}

// A chain whose middle layer multiplies by a factor that the test sets.
struct Factor final : model::Block {
  // With bad_call_of_three 0, 1 or 2 every third forward, from that one on, gives infinity.
  explicit Factor(double* value, int bad_call_of_three = -1)
      : Block("factor"), value_(value), bad_call_(bad_call_of_three) {
    weight_ = register_parameter("weight", torch::ones({1}));
  }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    const bool bad = calls_++ % 3 == bad_call_;
    return x * weight_ * (bad ? INFINITY : *value_);
  }
  double* value_;
  int bad_call_;
  int calls_ = 0;
  torch::Tensor weight_;
};

}  // namespace zeroth::engine
