// Micro-batches of one step, and the normalization of their losses to a mean.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "device/tensor.h"
#include "engine/loader.h"

namespace zeroth::engine {

// Return whether this rank reports the loss that it computes, and what its batch counts. Ranks that
// share a layer get the same batch, and each computes its full loss; so do the stages of a
// pipeline, of which the last one computes the loss. One of them reports each, the others add zero.
bool reports_loss(const comm::DeviceMesh& mesh);
bool reports_batch(const comm::DeviceMesh& mesh);

// TokenCounts holds the counts of one rank, or their sums over all.
struct TokenCounts {
  int64_t tokens = 0;  // positions
  int64_t num_label_tokens = 0;
  int64_t num_label_micro_batches = 0;  // micro-batches with a label token
};

// StepBatches provides the micro-batches of one step, or of an evaluation, on this rank. It fetches
// each when it is first used.
class StepBatches {
 public:
  // Fetches `count` micro-batches from `data`, to which it keeps a reference.
  StepBatches(DataLoader& data, int64_t count, torch::Device device)
      : data_(data), count_(count), device_(device) {}

  // Returns the positions of all `count` micro-batches, before next() returns any: as the loader
  // counts them, otherwise as if all were as large as the first one.
  int64_t count_positions();
  // Returns the next micro-batch, on the device. Throws what the loader throws.
  model::MicroBatch next();
  // Fetches micro-batches before next() returns them, until there are `count` of the step, or all.
  void fetch_until(int64_t count);
  // Returns those that are fetched and not returned yet.
  const std::deque<model::MicroBatch>& fetched() const { return fetched_; }
  // Returns [batch, seq] of the tokens of the step's micro-batch; unset if it is not fetched yet.
  std::optional<std::vector<int64_t>> token_sizes(int64_t micro_batch) const;
  // Fetches the remaining micro-batches after an exception, so that the next step begins where it
  // would have begun without it. Leaves a loader that throws where it is.
  void skip_remaining() noexcept;

  // Return the counts of the micro-batches fetched so far.
  const TokenCounts& counts() const { return counts_; }
  int64_t num_samples() const { return num_samples_; }
  // Returns the indices of the first of these samples, at most kMaxListed.
  const std::vector<int64_t>& first_samples() const { return first_samples_; }
  static constexpr int64_t kMaxListed = 1000;

 private:
  model::MicroBatch fetch();

  DataLoader& data_;
  int64_t count_;
  torch::Device device_;
  int64_t num_fetched_ = 0;
  std::deque<model::MicroBatch> fetched_;          // and not returned yet
  std::vector<std::vector<int64_t>> token_sizes_;  // [micro-batch]
  TokenCounts counts_;
  int64_t num_samples_ = 0;
  std::vector<int64_t> first_samples_;
};

// Returns the number of tokens whose loss is computed.
int64_t count_label_tokens(const model::MicroBatch& batch);

// LossNormalizer divides losses before the number of label tokens is known. The ranks learn that
// number when they add up their losses, at the end of a step; on a GPU an earlier answer would
// require a wait. Until then all ranks divide by a power of two near the nominal count, so that
// losses and gradients of all ranks and micro-batches add up to the step's mean except for
// normalization(). Division by a power of two is exact: the result's bits do not depend on the
// nominal count, which may differ in a run that resumes from a checkpoint.
class LossNormalizer {
 public:
  // `nominal` is the positions of a step over all ranks, or, for a mean of micro-batches, their
  // number; the same on all ranks.
  LossNormalizer(configs::LossMean mean, int64_t nominal);

  // Returns the value that makes the same divisor again, even with another configuration.
  int64_t nominal() const { return static_cast<int64_t>(nominal_); }

  // Returns the divisor of the sum of losses over the label tokens of one micro-batch.
  double divisor(int64_t num_label_tokens) const;
  // Returns the factor from the sum over all ranks to the mean. `all` is the counts of a step with
  // a label token.
  double normalization(const TokenCounts& all) const;

 private:
  configs::LossMean mean_;
  double nominal_;
};

// Returns the normalizer for all ranks. `positions` is of this rank's first step. Collective.
LossNormalizer make_loss_normalizer(int64_t positions, const configs::Config& config,
                                    comm::DeviceMesh& mesh);

// Throws an Error that names the samples of the global batch. Collective.
[[noreturn]] void throw_no_label_tokens(const StepBatches& batches, int64_t step,
                                        comm::DeviceMesh& mesh);

// StepFlags is what a rank has to report in a step, 0 or 1 each, or the numbers of ranks that
// report it.
struct StepFlags {
  int64_t stop_requests = 0;  // the rank's DataLoader requests a stop
  int64_t save_requests = 0;  // the rank's DataLoader requests a save
  int64_t writing = 0;        // the rank's pending checkpoint is not written yet
  int64_t unused = 0;         // the rank left a parameter without a gradient
};

// StepTotals holds the values of one rank, or their sums over all. Loss and counts include only
// ranks with reports_loss() and reports_batch().
struct StepTotals {
  double loss = 0;      // divided by LossNormalizer
  double squares = 0;   // of the gradients' elements
  double aux_loss = 0;  // load balancing loss, weighted as losses are
  StepFlags flags = {};
  TokenCounts counts;
  std::vector<double> pipe_idle = {};      // as in StepStats, of one rank at its coordinate
  std::vector<double> expert_counts = {};  // ExpertLoads::counts()
};

// DeviceTotals are those of the totals that are computed on a device.
struct DeviceTotals {
  torch::Tensor loss, squares, aux_loss;  // scalars
  torch::Tensor expert_counts;            // [experts of all blocks]
};

// Returns the totals as an fp64 tensor on the device of `device`, which replaces fields of `own`.
// The CPU does not wait for it.
torch::Tensor pack_totals(const DeviceTotals& device, const StepTotals& own);

// Returns the totals as numbers, of which the last `num_experts` are counts of experts. Waits for a
// GPU.
StepTotals unpack_totals(const torch::Tensor& sums, int64_t num_experts);

}  // namespace zeroth::engine
