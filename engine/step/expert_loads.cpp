#include "engine/step/expert_loads.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"

namespace zeroth::engine {

using torch::Tensor;

namespace {

torch::TensorOptions doubles(const comm::DeviceMesh& mesh) {
  return torch::TensorOptions(mesh.device()).dtype(torch::kDouble);
}

}  // namespace

ExpertLoads::ExpertLoads(const model::Blocks& blocks, const comm::DeviceMesh& mesh) : mesh_(mesh) {
  for (const auto& block : blocks)
    if (block->num_experts() > 0) blocks_.emplace_back(block->label(), block->num_experts());
  begin_step();
}

void ExpertLoads::begin_step() {
  int64_t size = 0;
  for (const auto& [label, experts] : blocks_) size += experts;
  losses_ = torch::zeros({2}, doubles(mesh_));
  counts_ = torch::zeros({size}, doubles(mesh_));
}

void ExpertLoads::prepare(model::MicroBatch& batch) const {
  if (!blocks_.empty()) batch.router_sums = std::make_shared<model::RouterSums>();
}

void ExpertLoads::finish_forward(const model::MicroBatch& batch, double weight) {
  if (!batch.router_sums) return;
  model::RouterSums& sums = *batch.router_sums;
  double coefficient = 0;
  int64_t begin = 0;
  for (const auto& [label, experts] : blocks_) {
    const auto layer = sums.layers.find(label);
    if (layer != sums.layers.end()) {
      counts_.narrow(0, begin, experts).add_(layer->second.counts);
      coefficient = std::max(coefficient, layer->second.aux_loss_coef);
    }
    begin += experts;
  }
  if (coefficient == 0) return;
  // A stage runs backward before the others have run forward.
  if (mesh_.layout().shape()[comm::MeshDim::kPp] > 1)
    throw Error(
        "the load balancing loss of experts needs the loads of all stages of the pipeline before "
        "one of them runs backward: set pipeline.stages to 1, or the loss's coefficient to 0");
  balance(sums, batch, weight);
}

void ExpertLoads::balance(model::RouterSums& sums, const model::MicroBatch& batch, double weight) {
  const auto& first = sums.layers.begin()->second;
  const int64_t experts = first.counts.size(0);
  // Counts, scores, tokens of all blocks, and the weight.
  const Tensor totals = torch::zeros({2 * experts + 2}, doubles(mesh_));
  for (const auto& [label, layer] : sums.layers) {
    ZEROTH_CHECK(layer.counts.size(0) == experts, "{} has {} experts, another block {}", label,
                 layer.counts.size(0), experts);
    totals.narrow(0, 0, experts).add_(layer.counts);
    totals.narrow(0, experts, experts).add_(layer.scores);
    totals[2 * experts].add_(layer.tokens);
  }
  totals[2 * experts + 1].fill_(weight);
  mesh_.world().all_reduce(totals, comm::ReduceOp::kSum, "loads of experts").wait();
  const Tensor all_tokens = totals[2 * experts].clamp_min(1);  // all may be padding
  const Tensor all_weight = totals[2 * experts + 1];
  const Tensor shares = totals.narrow(0, 0, experts) / all_tokens;
  const Tensor means = totals.narrow(0, experts, experts) / all_tokens;
  const Tensor loss = (shares * means).sum() * static_cast<double>(experts) * all_weight;
  sums.score_gradient = (shares / all_tokens * all_weight *
                         (static_cast<double>(experts) * first.aux_loss_coef * batch.grad_scale))
                            .to(torch::kFloat);
  // Every rank has the loss of all: one reports it.
  if (mesh_.rank() == 0) losses_.add_(at::stack({loss * first.aux_loss_coef, loss}));
}

std::vector<std::vector<int64_t>> ExpertLoads::by_block(const std::vector<double>& counts) const {
  std::vector<std::vector<int64_t>> blocks;
  auto next = counts.begin();
  for (const auto& [label, experts] : blocks_) {
    auto& tokens = blocks.emplace_back();
    for (int64_t i = 0; i < experts; ++i) tokens.push_back(std::llround(*next++));
  }
  return blocks;
}

}  // namespace zeroth::engine
