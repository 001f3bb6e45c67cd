#include "engine/step/step_batches.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"
#include "comm/cpu_collectives.h"

namespace zeroth::engine {
namespace {

// Returns a copy on the device. It is made from page-locked memory, so that nothing waits for it.
torch::Tensor copy_to_device(const torch::Tensor& tensor, torch::Device device) {
  if (!tensor.defined()) return tensor;
  if (device.is_cpu()) return tensor.clone();
  // The loader may use its memory again before the device has read it.
  const torch::Tensor own = tensor.is_pinned() ? tensor.clone() : tensor.contiguous();
  return own.pin_memory().to(device, /*non_blocking=*/true);
}

// Returns the first samples of all ranks, in rank order.
std::vector<int64_t> gather_samples(std::vector<int64_t> own, comm::DeviceMesh& mesh) {
  if (!reports_batch(mesh)) own.clear();
  const int64_t max_samples = comm::max_over_ranks(std::ssize(own), "a number of samples", mesh);
  own.resize(static_cast<size_t>(max_samples), -1);
  const torch::Tensor all = torch::empty({max_samples * mesh.world_size()}, torch::kLong);
  mesh.cpu_group().all_gather(all, torch::tensor(own, torch::kLong), "sample numbers").wait();
  std::vector<int64_t> samples(all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel());
  std::erase(samples, -1);
  return samples;
}

}  // namespace

bool reports_loss(const comm::DeviceMesh& mesh) {
  return mesh.coordinate(comm::MeshDim::kTp) == 0;
}

bool reports_batch(const comm::DeviceMesh& mesh) {
  return reports_loss(mesh) && mesh.coordinate(comm::MeshDim::kPp) == 0;
}

int64_t count_label_tokens(const model::MicroBatch& batch) {
  return batch.label_indices.defined() ? batch.label_indices.numel() : 0;
}

int64_t StepBatches::count_positions() {
  ZEROTH_CHECK(num_fetched_ == 0, "{} micro-batches are already fetched", num_fetched_);
  if (const auto counted = data_.count_positions(count_)) return *counted;
  fetch_until(1);
  return count_ * fetched_.front().tokens.numel();
}

model::MicroBatch StepBatches::next() {
  if (fetched_.empty()) fetched_.push_back(fetch());
  model::MicroBatch batch = std::move(fetched_.front());
  fetched_.pop_front();
  return batch;
}

void StepBatches::fetch_until(int64_t count) {
  while (num_fetched_ < std::min(count, count_)) fetched_.push_back(fetch());
}

std::optional<std::vector<int64_t>> StepBatches::token_sizes(int64_t micro_batch) const {
  if (micro_batch >= std::ssize(token_sizes_)) return std::nullopt;
  return token_sizes_[static_cast<size_t>(micro_batch)];
}

model::MicroBatch StepBatches::fetch() {
  ZEROTH_CHECK(num_fetched_ < count_, "all {} micro-batches are already fetched", count_);
  const int64_t index = std::exchange(num_fetched_, count_);  // remains if the loader throws
  model::MicroBatch batch = data_.next();
  ZEROTH_CHECK(batch.tokens.defined(), "micro-batch {} has no tokens", index);
  num_fetched_ = index + 1;
  token_sizes_.push_back(batch.tokens.sizes().vec());
  if (batch.targets.defined()) {
    batch.label_indices = batch.targets.flatten().ne(model::kIgnoreIndex).nonzero().squeeze(1);
  }
  const int64_t trained = count_label_tokens(batch);
  counts_.tokens += batch.tokens.numel();
  counts_.num_label_tokens += trained;
  counts_.num_label_micro_batches += trained > 0;
  num_samples_ += std::ssize(batch.samples);
  const auto room = static_cast<size_t>(kMaxListed) - first_samples_.size();
  const auto listed = std::span(batch.samples).first(std::min(batch.samples.size(), room));
  first_samples_.insert(first_samples_.end(), listed.begin(), listed.end());
  // The loader may use its memory again for the next one.
  for (auto* tensor : {&batch.tokens, &batch.targets, &batch.positions, &batch.attention_mask,
                       &batch.label_indices}) {
    *tensor = copy_to_device(*tensor, device_);
  }
  batch.first_keys = copy_to_device(batch.first_keys, torch::kCPU);
  return batch;
}

void StepBatches::skip_remaining() noexcept {
  try {
    for (; num_fetched_ < count_; ++num_fetched_) data_.next();
  } catch (...) {  // the caller reports the exception that ended the step
    num_fetched_ = count_;
  }
}

LossNormalizer::LossNormalizer(configs::LossMean mean, int64_t nominal)
    : mean_(mean), nominal_(static_cast<double>(std::bit_ceil(static_cast<uint64_t>(nominal)))) {}

double LossNormalizer::divisor(int64_t num_label_tokens) const {
  if (mean_ == configs::LossMean::kToken) return nominal_;
  // A micro-batch without label tokens has no mean and a sum of 0: any divisor works.
  return static_cast<double>(std::max<int64_t>(num_label_tokens, 1)) * nominal_;
}

double LossNormalizer::normalization(const TokenCounts& all) const {
  const bool by_token = mean_ == configs::LossMean::kToken;
  return nominal_ /
         static_cast<double>(by_token ? all.num_label_tokens : all.num_label_micro_batches);
}

LossNormalizer make_loss_normalizer(int64_t positions, const configs::Config& config,
                                    comm::DeviceMesh& mesh) {
  if (config.loss_mean == configs::LossMean::kMicroBatch) {
    return {config.loss_mean,
            config.batch.accumulation_steps * mesh.layout().shape()[comm::MeshDim::kDp]};
  }
  if (!reports_batch(mesh)) positions = 0;
  comm::all_reduce_values({&positions, 1}, comm::ReduceOp::kSum, "positions of a step", mesh);
  return {config.loss_mean, positions};
}

void throw_no_label_tokens(const StepBatches& batches, int64_t step, comm::DeviceMesh& mesh) {
  int64_t more =
      reports_batch(mesh) ? batches.num_samples() - std::ssize(batches.first_samples()) : 0;
  comm::all_reduce_values({&more, 1}, comm::ReduceOp::kSum, "numbers of samples", mesh);
  throw Error("the global batch of step {} has no label tokens (samples {}{})", step,
              fmt::join(gather_samples(batches.first_samples(), mesh), ", "),
              more > 0 ? fmt::format(" and {} more", more) : "");
}

torch::Tensor pack_totals(const DeviceTotals& device, const StepTotals& own) {
  const auto& [tokens, num_label_tokens, num_label_micro_batches] = own.counts;
  const auto& [stop_requests, save_requests, writing, unused] = own.flags;
  std::vector<double> values;
  for (const int64_t count : {stop_requests, save_requests, writing, unused, tokens,
                              num_label_tokens, num_label_micro_batches})
    values.push_back(static_cast<double>(count));
  values.insert(values.end(), own.pipe_idle.begin(), own.pipe_idle.end());
  torch::Tensor known = torch::tensor(values, torch::kDouble);
  if (!device.loss.is_cpu())
    known = known.pin_memory().to(device.loss.device(), /*non_blocking=*/true);
  const torch::Tensor sums =
      at::stack({device.loss.to(torch::kDouble), device.squares.to(torch::kDouble),
                 device.aux_loss.to(torch::kDouble)});
  return at::cat({sums, known, device.expert_counts.to(torch::kDouble)});
}

StepTotals unpack_totals(const torch::Tensor& sums, int64_t num_experts) {
  const torch::Tensor host = sums.to(torch::kCPU);
  const auto* values = host.const_data_ptr<double>();
  const auto count = [&](int index) { return std::llround(values[index]); };
  const double* const experts = values + host.numel() - num_experts;
  return {.loss = values[0],
          .squares = values[1],
          .aux_loss = values[2],
          .flags = {count(3), count(4), count(5), count(6)},
          .counts = {count(7), count(8), count(9)},
          .pipe_idle = {values + 10, experts},
          .expert_counts = {experts, experts + num_experts}};
}

}  // namespace zeroth::engine
