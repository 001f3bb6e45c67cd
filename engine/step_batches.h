// The micro-batches of one step, and the mean that their losses add up to.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "engine/loader.h"

namespace zeroth::engine {

// Ranks that share a layer get the same batch, and each has the whole loss of it: one of them tells
// it, the others add zero.
bool reports_loss(const comm::DeviceMesh& mesh);

// Of one rank, or added up over all.
struct TokenCounts {
  int64_t tokens = 0;  // positions
  int64_t num_label_tokens = 0;
  int64_t num_label_micro_batches = 0;  // that have a trained token
};

// The micro-batches of one step, or of an evaluation, on this rank. Each is drawn when it is used,
// so that a step holds one of them however many it has.
class StepBatches {
 public:
  // Draws `count` micro-batches from `data`, to which it keeps a reference.
  StepBatches(Loader& data, int64_t count, torch::Device device)
      : data_(data), count_(count), device_(device) {}

  // Positions of all `count` micro-batches, before any of them is returned: as the loader counts
  // them, else as if all were as large as the first one.
  int64_t count_positions();
  // The next micro-batch, on the device. Throws what the loader throws.
  model::MicroBatch next();
  // Draws what is left after an exception, so that the next step begins where it would have begun
  // without that. A loader that throws is left where it is.
  void skip_remaining() noexcept;

  // Of the micro-batches drawn so far.
  const TokenCounts& counts() const { return counts_; }
  int64_t num_samples() const { return num_samples_; }
  // The indices of the first samples of these, at most kMaxListed.
  const std::vector<int64_t>& first_samples() const { return first_samples_; }
  static constexpr int64_t kMaxListed = 1000;

 private:
  model::MicroBatch fetch();

  Loader& data_;
  int64_t count_;
  torch::Device device_;
  int64_t num_fetched_ = 0;
  std::optional<model::MicroBatch> first_;  // drawn by count_positions()
  TokenCounts counts_;
  int64_t num_samples_ = 0;
  std::vector<int64_t> first_samples_;
};

// The number of tokens whose loss is computed.
int64_t count_label_tokens(const model::MicroBatch& batch);

// How many trained tokens the ranks have is known when they add up their losses, at the end of a
// step; a GPU would have to be waited for to know it before. Until then all divide by a power of
// two near the usual count, so that losses and gradients of all ranks and micro-batches add up to
// the step's mean but for normalization(). Division by a power of two is exact, so that it leaves
// no trace in their bits which count was usual: a run that goes on from a checkpoint may find
// another.
class LossNormalizer {
 public:
  // `usual`: positions of a step over all ranks, for a mean of micro-batches their number; the same
  // on all ranks.
  LossNormalizer(configs::LossMean mean, int64_t nominal);

  // Makes the same divisor again, whatever the run's configuration is by then.
  int64_t nominal() const { return static_cast<int64_t>(nominal_); }

  // For the sum of losses over the trained tokens of one micro-batch.
  double divisor(int64_t num_label_tokens) const;
  // `all`: of a step that has a trained token.
  double normalization(const TokenCounts& all) const;

 private:
  configs::LossMean mean_;
  double nominal_;
};

// `positions`: of this rank's first step. Collective.
LossNormalizer make_loss_normalizer(int64_t positions, const configs::Config& config,
                                    comm::DeviceMesh& mesh);

// Throws an Error that names the samples of the global batch. Collective.
[[noreturn]] void throw_no_label_tokens(const StepBatches& batches, int64_t step,
                                        comm::DeviceMesh& mesh);

// Of one rank, or added up over all. Loss and counts of ranks that tell their batch.
struct StepTotals {
  double loss = 0;            // divided by LossNormalizer
  double squares = 0;         // of the gradients' elements
  int64_t stop_requests = 0;  // ranks whose Loader wants training to end
  int64_t save_requests = 0;  // ranks whose Loader wants the run to be saved
  int64_t writing = 0;        // ranks whose checkpoint beside training is not written yet
  int64_t unused = 0;         // ranks that left a parameter without a gradient
  TokenCounts counts;
};

// fp64, on the device of `loss` and `squares`, scalars that stand in place of own's. The host does
// not wait for them.
torch::Tensor pack_totals(const torch::Tensor& loss, const torch::Tensor& squares,
                          const StepTotals& own);

// Waits for a GPU.
StepTotals unpack_totals(const torch::Tensor& sums);

}  // namespace zeroth::engine
