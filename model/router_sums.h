// What the routers of a chain's layers with experts count of one micro-batch.
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.h"

namespace zeroth::model {

// RouterSums belongs to a micro-batch in training; its layers share it. A layer that runs again
// (recompute) assigns the same values.
struct RouterSums {
  struct Layer {
    torch::Tensor counts;  // [experts] int64: tokens of this rank that chose each expert
    torch::Tensor scores;  // [experts] fp32: sums over its tokens of their scores
    int64_t tokens = 0;
  };
  std::vector<Layer> layers;  // [layer]; undefined tensors without experts

  // [experts] fp32: the gradient of each score of a softmax, from the load balancing loss; undefined without
  // one. The engine assigns it between forward and backward.
  torch::Tensor score_gradient;
};

}  // namespace zeroth::model
