// The loads of experts over the micro-batches of a step, and the loss that balances them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/device_mesh.h"
#include "device/tensor.h"
#include "model/block.h"

namespace zeroth::engine {

// ExpertLoads sums up what the routers of this rank count. The load balancing loss of a micro-batch
// is that of transformers (Mixtral's load_balancing_loss_func), over all blocks with experts
// together and the tokens of all ranks: experts * sum over them of f P, where f is the share of the
// tokens that chose an expert, and P the mean of its scores. Its gradient is that of the scores.
class ExpertLoads {
 public:
  // `mesh` must outlive it.
  ExpertLoads(const model::Blocks& blocks, const comm::DeviceMesh& mesh);

  // Resets the sums.
  void begin_step();
  // Prepares a micro-batch of training.
  void prepare(model::MicroBatch& batch) const;
  // Adds what was counted, after the forward of all blocks; `weight` is this rank's part of the
  // sum of losses' weights (label tokens / divisor). Collective if the blocks have a load balancing
  // loss; throws an Error then in a pipeline.
  void finish_forward(const model::MicroBatch& batch, double weight);

  // Returns this rank's sums, fp64 on the device: the load balancing losses times their weights and
  // coefficients, and without the coefficients, [2]; and for each block with experts, the tokens
  // that chose each, [sum of experts].
  const torch::Tensor& losses() const { return losses_; }
  const torch::Tensor& counts() const { return counts_; }

  // Returns the counts of each block, of the sums of counts() over all ranks.
  std::vector<std::vector<int64_t>> by_block(const std::vector<double>& counts) const;

 private:
  void balance(model::RouterSums& sums, const model::MicroBatch& batch, double weight);

  const comm::DeviceMesh& mesh_;
  std::vector<std::pair<std::string, int64_t>> blocks_;  // labels and numbers of experts
  torch::Tensor losses_, counts_;
};

}  // namespace zeroth::engine
