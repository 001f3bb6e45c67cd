#include "engine/step_batches.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>

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

// The sample numbers of all batches, in rank order.
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

StepBatches draw_batches(Loader& data, int64_t count, torch::Device device) {
  StepBatches step;
  for (int64_t i = 0; i < count; ++i) {
    model::MicroBatch batch = data.next();
    ZEROTH_CHECK(batch.tokens.defined(), "micro-batch {} has no tokens", i);
    step.counts.tokens += batch.tokens.numel();
    if (batch.targets.defined()) {
      batch.trained_rows = batch.targets.flatten().ne(model::kUntrained).nonzero().squeeze(1);
    }
    const int64_t trained = batch.targets.defined() ? batch.trained_rows.numel() : 0;
    step.trained_in.push_back(trained);
    step.counts.trained_tokens += trained;
    step.counts.trained_micro_batches += trained > 0;
    step.samples.insert(step.samples.end(), batch.samples.begin(), batch.samples.end());
    batch.tokens = to_device(batch.tokens, device);
    batch.targets = to_device(batch.targets, device);
    batch.positions = to_device(batch.positions, device);
    batch.trained_rows = to_device(batch.trained_rows, device);
    step.micro_batches.push_back(std::move(batch));
  }
  return step;
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

LossDivisor agree_on_divisor(const StepBatches& first, const configs::Config& config,
                             comm::Mesh& mesh) {
  if (config.loss_mean == configs::LossMean::kMicroBatch) {
    return {config.loss_mean,
            config.batch.accumulation_steps * mesh.grid().shape()[comm::Axis::kData]};
  }
  int64_t tokens = tells_batch(mesh) ? first.counts.tokens : 0;
  comm::agree({&tokens, 1}, comm::Reduce::kSum, "positions of a step", mesh);
  return {config.loss_mean, tokens};
}

void refuse_untrained(const StepBatches& batches, int64_t step, comm::Mesh& mesh) {
  throw Error("the global batch of step {} has no trained token (samples {})", step,
              fmt::join(all_samples(batches.samples, mesh), ", "));
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
