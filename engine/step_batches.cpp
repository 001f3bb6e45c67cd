#include "engine/step_batches.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace zeroth::engine {
namespace {

// From page-locked memory, whose copy nobody waits for.
torch::Tensor to_device(const torch::Tensor& tensor, torch::Device device) {
  if (!tensor.defined() || device.is_cpu()) return tensor;
  return (tensor.is_cpu() ? tensor.pin_memory() : tensor).to(device, /*non_blocking=*/true);
}

// Every rank's sample numbers, in rank order.
std::vector<int64_t> all_samples(const StepBatches& batches, comm::Mesh& mesh) {
  std::vector<int64_t> own;
  for (const auto& batch : batches.micro_batches) {
    own.insert(own.end(), batch.samples.begin(), batch.samples.end());
  }
  const auto options = torch::TensorOptions(mesh.device()).dtype(torch::kLong);
  torch::Tensor most = torch::full({1}, static_cast<int64_t>(own.size()), options);
  mesh.data().all_reduce(most, comm::Reduce::kMax, "a number of samples").wait();
  own.resize(static_cast<size_t>(most.item<int64_t>()), -1);
  const torch::Tensor mine = torch::tensor(own, torch::kLong).to(mesh.device());
  const torch::Tensor all = torch::empty({mine.numel() * mesh.world_size()}, options);
  mesh.data().all_gather(all, mine, "sample numbers").wait();
  const torch::Tensor on_cpu = all.to(torch::kCPU);
  std::vector<int64_t> samples(on_cpu.data_ptr<int64_t>(),
                               on_cpu.data_ptr<int64_t>() + on_cpu.numel());
  std::erase(samples, -1);
  return samples;
}

}  // namespace

StepBatches draw_local(Loader& data, int64_t count, torch::Device device) {
  StepBatches step;
  for (int64_t i = 0; i < count; ++i) {
    model::MicroBatch batch = data.next();
    ZEROTH_CHECK(batch.tokens.defined(), "micro-batch {} has no tokens", i);
    step.tokens += batch.tokens.numel();
    if (batch.targets.defined()) {
      batch.trained_rows = batch.targets.flatten().ne(model::kUntrained).nonzero().squeeze(1);
    }
    const int64_t trained = batch.targets.defined() ? batch.trained_rows.numel() : 0;
    step.trained_in.push_back(trained);
    step.trained_tokens += trained;
    step.trained_micro_batches += trained > 0;
    batch.tokens = to_device(batch.tokens, device);
    batch.targets = to_device(batch.targets, device);
    batch.positions = to_device(batch.positions, device);
    batch.trained_rows = to_device(batch.trained_rows, device);
    step.micro_batches.push_back(std::move(batch));
  }
  return step;
}

StepBatches draw_batches(Loader& data, int64_t count, comm::Mesh& mesh) {
  StepBatches step = draw_local(data, count, mesh.device());
  if (mesh.world_size() == 1) return step;
  torch::Tensor sums = to_device(
      torch::tensor({step.tokens, step.trained_tokens, step.trained_micro_batches}, torch::kLong),
      mesh.device());
  mesh.data().all_reduce(sums, comm::Reduce::kSum, "token counts of the step").wait();
  sums = sums.to(torch::kCPU);  // waits for a GPU
  step.tokens = sums[0].item<int64_t>();
  step.trained_tokens = sums[1].item<int64_t>();
  step.trained_micro_batches = sums[2].item<int64_t>();
  return step;
}

double loss_divisor(const StepBatches& step, size_t index, configs::LossMean mean) {
  if (mean == configs::LossMean::kToken) return static_cast<double>(step.trained_tokens);
  // One without trained tokens has no mean, and its sum is 0: any divisor will do.
  const int64_t own = std::max<int64_t>(step.trained_in[index], 1);
  return static_cast<double>(own) * static_cast<double>(step.trained_micro_batches);
}

void require_trained_tokens(const StepBatches& batches, int64_t step, comm::Mesh& mesh) {
  if (batches.trained_tokens > 0) return;
  throw Error("the global batch of step {} has no trained token (samples {})", step,
              fmt::join(all_samples(batches, mesh), ", "));
}

}  // namespace zeroth::engine
