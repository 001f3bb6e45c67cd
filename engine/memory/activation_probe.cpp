#include "engine/memory/activation_probe.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <functional>
#include <memory>

#include "base/error.h"
#include "base/machine/host_limits.h"
#include "base/machine/process_limits.h"
#include "base/machine/timer.h"
#include "engine/step/tape.h"
#include "model/blocks/linear.h"
#include "model/blocks/main_grad.h"

namespace zeroth::engine {
namespace {

constexpr int64_t kMaxRows = 16;

// Returns memory that reads as zeros, and occupies pages only once they are written.
torch::Tensor map_zeros(at::IntArrayRef shape, torch::Dtype dtype) {
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

void allocate_parameters(const model::Block& block, torch::Dtype dtype) {
  for (const torch::Tensor& parameter : block.parameters()) {
    if (!parameter.is_meta()) continue;  // tied, and has values already
    const torch::Tensor memory = map_zeros(
        parameter.sizes(), parameter.is_floating_point() ? dtype : parameter.scalar_type());
    parameter.unsafeGetTensorImpl()->shallow_copy_from(memory.getIntrusivePtr());
  }
}

model::MicroBatch batch_of(int64_t rows, int64_t length) {
  model::MicroBatch batch;
  batch.tokens = torch::zeros({rows, length}, torch::kLong);
  batch.targets = torch::zeros({rows, length}, torch::kLong);
  batch.sample_seeds.assign(static_cast<size_t>(rows), 1);
  return batch;
}

struct BlockSample : BlockValues<int64_t> {
  double seconds = 0;
};
using BlockSamples = std::vector<BlockSample>;

class BlockProbe {
 public:
  BlockProbe(const model::Blocks& blocks, const ProbeOptions& options)
      : blocks_(blocks), options_(options) {
    for (const auto& block : blocks_) allocate_parameters(*block, options_.dtype);
  }

  BlockSamples run(int64_t rows) {
    const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, count_);
    const model::MicroBatch batch = batch_of(rows, options_.length);
    Tape tape(blocks_.size(), /*first_with_input_gradient=*/1);
    BlockSamples samples(blocks_.size());
    torch::Tensor x;
    for (size_t i = 0; i < blocks_.size(); ++i) x = forward(i, x, batch, tape, samples[i]);
    torch::Tensor dy = torch::ones({});
    for (size_t i = options_.trains ? blocks_.size() : 0; i-- > 0;)
      backward(i, dy, tape, samples[i]);
    return samples;
  }

 private:
  torch::Tensor forward(size_t i, const torch::Tensor& x, const model::MicroBatch& batch,
                        Tape& tape, BlockSample& sample) {
    count_->begin();
    const Timer without_graph;
    torch::Tensor y = tape.forward_without_graph(*blocks_[i], x, batch);
    if (!options_.trains) sample.seconds += without_graph.seconds();
    sample.no_grad = count_->peak();
    sample.output = static_cast<int64_t>(y.nbytes());
    if (!options_.trains) return y;
    y = torch::Tensor();
    count_->begin();
    const Timer timer;
    y = tape.forward(*blocks_[i], i, x, batch);
    sample.seconds += timer.seconds();
    sample.forward = count_->peak();
    sample.kept = count_->now();
    return y;
  }

  void backward(size_t i, torch::Tensor& dy, Tape& tape, BlockSample& sample) {
    for (const torch::Tensor& parameter : blocks_[i]->parameters()) {
      if (!parameter.is_floating_point()) continue;
      parameter.mutable_grad() = model::make_main_grad(
          map_zeros(parameter.sizes(), options_.gradients), blocks_[i]->accumulates_grads());
    }
    count_->begin();
    const Timer timer;
    dy = tape.backward(i, dy);
    sample.seconds += timer.seconds();
    sample.backward = count_->peak();
    sample.freed = -count_->now();
    for (const torch::Tensor& parameter : blocks_[i]->parameters()) {
      parameter.mutable_grad() = torch::Tensor();
    }
  }

  const model::Blocks& blocks_;
  const ProbeOptions& options_;
  std::shared_ptr<Allocations> count_ = std::make_shared<Allocations>();
};

// Returns the number of rows that make the last block's products large, 0 if one row's are.
// LibTorch copies a factor of small 16-bit products, which it would not do in a real run.
int64_t rows_of_large_products(const model::Block& last, int64_t length) {
  constexpr int64_t kLarge = int64_t{1} << 25;  // multiplications; copies observed up to 2^24.2
  const int64_t row_products = model::count_parameters(last) * length;
  return row_products >= kLarge ? 0
                                : (kLarge + row_products - 1) / std::max<int64_t>(1, row_products);
}

}  // namespace

std::vector<ProbedBlock> probe_blocks(const model::Blocks& blocks, const ProbeOptions& options) {
  double parameters = 0;
  for (const auto& block : blocks)
    parameters += static_cast<double>(model::count_parameters(*block));
  // Of forward and backward of one row: 2 and 4 per parameter and position.
  const double operations = 6 * parameters * static_cast<double>(options.length);
  const double fit = options.max_operations / (4 * operations + 1);
  auto rows = static_cast<int64_t>(std::min(fit, static_cast<double>(kMaxRows)));
  if (rows > 0) {
    const int64_t large = rows_of_large_products(*blocks.back(), options.length);
    rows = std::max(rows, std::min(kMaxRows, large));
  }
  BlockProbe probe(blocks, options);
  const int64_t single_rows = std::max<int64_t>(rows, 1);
  // Fills the blocks' caches: tables of positions and masks.
  if (rows > 0 || options.times) probe.run(single_rows);
  const auto tokens = static_cast<double>(single_rows * options.length);
  const BlockSamples single = probe.run(single_rows);
  const BlockSamples doubled = rows > 0 ? probe.run(2 * rows) : BlockSamples();
  const auto growth = [tokens](int64_t bytes, int64_t more) {
    return Growth{.fixed = static_cast<double>(bytes - more),
                  .per_token = static_cast<double>(more) / tokens};
  };
  std::vector<ProbedBlock> probed;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const BlockValues<int64_t>& own = single[i];
    const BlockValues<int64_t> more =
        rows > 0
            ? for_each_value(std::minus<>(), static_cast<BlockValues<int64_t>>(doubled[i]), own)
            : own;
    const double seconds = rows > 0 ? doubled[i].seconds / 2 : single[i].seconds;
    probed.push_back({for_each_value(growth, own, more), seconds / tokens});
  }
  return probed;
}

}  // namespace zeroth::engine
