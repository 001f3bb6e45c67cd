#include "engine/step_batches.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"
#include "comm/agreement.h"

namespace zeroth::engine {
namespace {

// From page-locked memory, whose copy nobody waits for, and which no two rows can share.
torch::Tensor to_device(const torch::Tensor& tensor, torch::Device device) {
  if (!tensor.defined() || device.is_cpu()) return tensor;
  return (tensor.is_cpu() ? tensor.contiguous().pin_memory() : tensor)
      .to(device, /*non_blocking=*/true);
}

// The first samples of all ranks, in rank order.
std::vector<int64_t> all_samples(std::vector<int64_t> own, comm::Mesh& mesh) {
  if (!tells_batch(mesh)) own.clear();
  const int64_t most = comm::greatest_over_ranks(std::ssize(own), "a number of samples", mesh);
  own.resize(static_cast<size_t>(most), -1);
  const torch::Tensor all = torch::empty({most * mesh.world_size()}, torch::kLong);
  mesh.host().all_gather(all, torch::tensor(own, torch::kLong), "sample numbers").wait();
  std::vector<int64_t> samples(all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel());
  std::erase(samples, -1);
  return samples;
}

}  // namespace

bool tells_batch(const comm::Mesh& mesh) {
  return mesh.coordinate(comm::Axis::kTensor) == 0;
}

int64_t count_trained_tokens(const model::MicroBatch& batch) {
  return batch.trained_rows.defined() ? batch.trained_rows.numel() : 0;
}

int64_t StepBatches::count_positions() {
  ZEROTH_CHECK(num_drawn_ == 0, "{} micro-batches are drawn", num_drawn_);
  if (const auto counted = data_.count_positions(count_)) return *counted;
  first_ = draw();
  return count_ * first_->tokens.numel();
}

model::MicroBatch StepBatches::next() {
  model::MicroBatch batch = first_ ? *std::exchange(first_, std::nullopt) : draw();
  batch.tokens = to_device(batch.tokens, device_);
  batch.targets = to_device(batch.targets, device_);
  batch.positions = to_device(batch.positions, device_);
  batch.trained_rows = to_device(batch.trained_rows, device_);
  return batch;
}

model::MicroBatch StepBatches::draw() {
  ZEROTH_CHECK(num_drawn_ < count_, "all {} micro-batches are drawn", count_);
  const int64_t index = std::exchange(num_drawn_, count_);  // where the loader throws
  model::MicroBatch batch = data_.next();
  ZEROTH_CHECK(batch.tokens.defined(), "micro-batch {} has no tokens", index);
  num_drawn_ = index + 1;
  if (batch.targets.defined()) {
    batch.trained_rows = batch.targets.flatten().ne(model::kUntrained).nonzero().squeeze(1);
  }
  const int64_t trained = count_trained_tokens(batch);
  counts_.tokens += batch.tokens.numel();
  counts_.trained_tokens += trained;
  counts_.trained_micro_batches += trained > 0;
  num_samples_ += std::ssize(batch.samples);
  const auto room = static_cast<size_t>(kMaxListed) - first_samples_.size();
  const auto listed = std::span(batch.samples).first(std::min(batch.samples.size(), room));
  first_samples_.insert(first_samples_.end(), listed.begin(), listed.end());
  return batch;
}

void StepBatches::skip_rest() noexcept {
  try {
    for (; num_drawn_ < count_; ++num_drawn_) data_.next();
  } catch (...) {  // the exception that ended the step is reported
    num_drawn_ = count_;
  }
}

LossDivisor::LossDivisor(configs::LossMean mean, int64_t usual)
    : mean_(mean), usual_(static_cast<double>(std::bit_ceil(static_cast<uint64_t>(usual)))) {}

double LossDivisor::of(int64_t trained_in_micro_batch) const {
  if (mean_ == configs::LossMean::kToken) return usual_;
  // One without trained tokens has no mean, and its sum is 0: any divisor will do.
  return static_cast<double>(std::max<int64_t>(trained_in_micro_batch, 1)) * usual_;
}

double LossDivisor::correction(const StepCounts& all) const {
  const bool by_token = mean_ == configs::LossMean::kToken;
  return usual_ / static_cast<double>(by_token ? all.trained_tokens : all.trained_micro_batches);
}

LossDivisor agree_on_divisor(int64_t positions, const configs::Config& config, comm::Mesh& mesh) {
  if (config.loss_mean == configs::LossMean::kMicroBatch) {
    return {config.loss_mean,
            config.batch.accumulation_steps * mesh.grid().shape()[comm::Axis::kData]};
  }
  if (!tells_batch(mesh)) positions = 0;
  comm::agree({&positions, 1}, comm::Reduce::kSum, "positions of a step", mesh);
  return {config.loss_mean, positions};
}

void refuse_untrained(const StepBatches& batches, int64_t step, comm::Mesh& mesh) {
  int64_t more =
      tells_batch(mesh) ? batches.num_samples() - std::ssize(batches.first_samples()) : 0;
  comm::agree({&more, 1}, comm::Reduce::kSum, "numbers of samples", mesh);
  throw Error("the global batch of step {} has no trained token (samples {}{})", step,
              fmt::join(all_samples(batches.first_samples(), mesh), ", "),
              more > 0 ? fmt::format(" and {} more", more) : "");
}

torch::Tensor to_tensor(const torch::Tensor& loss, const torch::Tensor& squares,
                        const StepSums& own) {
  const StepCounts& counts = own.counts;
  torch::Tensor known = torch::tensor({own.ends, own.saves, own.writing, own.unused, counts.tokens,
                                       counts.trained_tokens, counts.trained_micro_batches},
                                      torch::kDouble);
  if (!loss.is_cpu()) known = known.pin_memory().to(loss.device(), /*non_blocking=*/true);
  return at::cat({at::stack({loss.to(torch::kDouble), squares.to(torch::kDouble)}), known});
}

StepSums from_tensor(const torch::Tensor& sums) {
  const torch::Tensor host = sums.to(torch::kCPU);
  const auto* values = host.const_data_ptr<double>();
  const auto count = [&](int index) { return std::llround(values[index]); };
  return {.loss = values[0],
          .squares = values[1],
          .ends = count(2),
          .saves = count(3),
          .writing = count(4),
          .unused = count(5),
          .counts = {
              .tokens = count(6), .trained_tokens = count(7), .trained_micro_batches = count(8)}};
}

}  // namespace zeroth::engine
