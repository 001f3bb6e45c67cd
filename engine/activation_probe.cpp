#include "engine/activation_probe.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/host_limits.h"
#include "base/process_limits.h"
#include "engine/tape.h"
#include "model/blocks/open_gradient.h"

namespace zeroth::engine {
namespace {

constexpr int64_t kMostRows = 16;

// Reads as zeros, and takes memory only where it is written.
torch::Tensor untouched(at::IntArrayRef shape, torch::Dtype dtype) {
  const auto bytes = static_cast<size_t>(std::max<int64_t>(
      1, c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(dtype))));
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw OutOfHostMemory(
        static_cast<int64_t>(bytes),
        fmt::format("{} bytes for a trial of one block: {}", bytes, system_reason(errno)));
  }
  return torch::from_blob(
      memory, shape, [bytes](void* mapped) { ::munmap(mapped, bytes); }, torch::dtype(dtype));
}

void give_memory(const model::Block& block, torch::Dtype dtype) {
  for (const torch::Tensor& parameter : block.parameters()) {
    if (!parameter.is_meta()) continue;  // tied, and has some
    const torch::Tensor memory = untouched(parameter.sizes(), dtype);
    parameter.unsafeGetTensorImpl()->shallow_copy_from(memory.getIntrusivePtr());
  }
}

model::MicroBatch batch_of(int64_t rows, int64_t length) {
  model::MicroBatch batch;
  batch.tokens = torch::zeros({rows, length}, torch::kLong);
  batch.targets = torch::zeros({rows, length}, torch::kLong);
  batch.row_seeds.assign(static_cast<size_t>(rows), 1);
  return batch;
}

struct Sample {
  int64_t output = 0, alone = 0, forward = 0, kept = 0, backward = 0, freed = 0;
};
using Samples = std::vector<Sample>;

class Probe {
 public:
  Probe(const model::Blocks& blocks, const ProbeOptions& options)
      : blocks_(blocks), options_(options) {
    for (const auto& block : blocks_) give_memory(*block, options_.dtype);
  }

  Samples run(int64_t rows) {
    const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, count_);
    const model::MicroBatch batch = batch_of(rows, options_.length);
    Tape tape(blocks_.size(), /*first_with_input_gradient=*/1);
    Samples samples(blocks_.size());
    torch::Tensor x;
    for (size_t i = 0; i < blocks_.size(); ++i) x = forward(i, x, batch, tape, samples[i]);
    torch::Tensor dy = torch::ones({});
    for (size_t i = options_.trains ? blocks_.size() : 0; i-- > 0;)
      backward(i, dy, tape, samples[i]);
    return samples;
  }

 private:
  torch::Tensor forward(size_t i, const torch::Tensor& x, const model::MicroBatch& batch,
                        Tape& tape, Sample& sample) {
    count_->begin();
    torch::Tensor y = tape.forward_without_graph(*blocks_[i], x, batch);
    sample.alone = count_->most();
    sample.output = static_cast<int64_t>(y.nbytes());
    if (!options_.trains) return y;
    y = torch::Tensor();
    count_->begin();
    y = tape.forward(*blocks_[i], i, x, batch);
    sample.forward = count_->most();
    sample.kept = count_->now();
    return y;
  }

  void backward(size_t i, torch::Tensor& dy, Tape& tape, Sample& sample) {
    for (const torch::Tensor& parameter : blocks_[i]->parameters()) {
      parameter.mutable_grad() = model::make_open_gradient(
          untouched(parameter.sizes(), options_.gradients), blocks_[i]->delivers_gradients());
    }
    count_->begin();
    dy = tape.backward(i, dy);
    sample.backward = count_->most();
    sample.freed = -count_->now();
    for (const torch::Tensor& parameter : blocks_[i]->parameters()) {
      parameter.mutable_grad() = torch::Tensor();
    }
  }

  const model::Blocks& blocks_;
  const ProbeOptions& options_;
  std::shared_ptr<Allocations> count_ = std::make_shared<Allocations>();
};

// Samples of so many rows, and of twice as many.
struct Pair {
  Samples once, twice;
  int64_t rows = 1;
};

Pair run_twice(Probe& probe, int64_t rows) {
  probe.run(rows);  // fills what blocks remember: tables of positions and masks
  return {.once = probe.run(rows), .twice = probe.run(2 * rows), .rows = rows};
}

Pair run_once(Probe& probe) {
  Pair pair{.once = probe.run(1), .twice = {}, .rows = 1};
  for (const Sample& sample : pair.once) {
    pair.twice.push_back({.output = 2 * sample.output,
                          .alone = 2 * sample.alone,
                          .forward = 2 * sample.forward,
                          .kept = 2 * sample.kept,
                          .backward = 2 * sample.backward,
                          .freed = 2 * sample.freed});
  }
  return pair;
}

BlockBytes block_bytes(const Pair& pair, size_t block, int64_t length) {
  const auto growth = [&](int64_t Sample::*bytes) {
    const auto once = static_cast<double>(pair.once[block].*bytes);
    const double more = static_cast<double>(pair.twice[block].*bytes) - once;
    return Growth{.fixed = once - more,
                  .per_token = more / static_cast<double>(pair.rows * length)};
  };
  return {.output = growth(&Sample::output),
          .alone = growth(&Sample::alone),
          .forward = growth(&Sample::forward),
          .kept = growth(&Sample::kept),
          .backward = growth(&Sample::backward),
          .freed = growth(&Sample::freed)};
}

// Of forward and backward of one row: 2 and 4 for each parameter and position.
double operations_of_row(const model::Blocks& blocks, int64_t length) {
  double parameters = 0;
  for (const auto& block : blocks) {
    for (const torch::Tensor& parameter : block->parameters()) {
      parameters += static_cast<double>(parameter.numel());
    }
  }
  return 6 * parameters * static_cast<double>(length);
}

// So many rows that the last block's products are large ones, 0 where one row's are: of small
// 16-bit products LibTorch copies a factor, which those of a run would not need.
int64_t rows_of_large_products(const model::Block& last, int64_t length) {
  constexpr int64_t kLarge = int64_t{1} << 25;  // multiplications; copies were seen up to 2^24.2
  int64_t of_row = 0;
  for (const torch::Tensor& parameter : last.parameters()) of_row += parameter.numel() * length;
  return of_row >= kLarge ? 0 : (kLarge + of_row - 1) / std::max<int64_t>(1, of_row);
}

}  // namespace

std::vector<BlockBytes> probe_blocks(const model::Blocks& blocks, const ProbeOptions& options) {
  const double fit = options.most_operations / (4 * operations_of_row(blocks, options.length) + 1);
  auto rows = static_cast<int64_t>(std::min(fit, static_cast<double>(kMostRows)));
  if (rows > 0) {
    const int64_t large = rows_of_large_products(*blocks.back(), options.length);
    rows = std::max(rows, std::min(kMostRows, large));
  }
  Probe probe(blocks, options);
  const Pair pair = rows > 0 ? run_twice(probe, rows) : run_once(probe);
  std::vector<BlockBytes> bytes;
  for (size_t i = 0; i < blocks.size(); ++i) bytes.push_back(block_bytes(pair, i, options.length));
  return bytes;
}

}  // namespace zeroth::engine
