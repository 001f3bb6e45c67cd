// Partition of a global batch of sample indices into the rows that each rank computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/samples/dataset.h"
#include "data/samples/sample_order.h"

namespace zeroth::data {

// DeviceKind is the kind of the computing device, as far as the length of a batch depends on it. A
// GPU runs many different lengths slowly: cuDNN plans its attention for each, which takes tens to
// hundreds of ms.
enum class DeviceKind { kCpu, kGpu };

// BatchPartition divides a global batch by micro-step, then rank, then row.
struct BatchPartition {
  int64_t micro_batch = 1;  // rows per rank and micro-step
  int64_t micro_steps = 1;  // accumulation; 1 for evaluation
  int64_t world = 1;        // data-parallel ranks
  int64_t rank = 0;
  int64_t step_samples = 0;  // if fewer than a step's rows; 0: the same number
  DeviceKind device = DeviceKind::kCpu;

  int64_t samples() const { return step_samples > 0 ? step_samples : global_batch(); }
  // Returns the rows of a step, including those without a sample.
  int64_t global_batch() const { return micro_batch * micro_steps * world; }

  // Returns the index in the global batch of this rank's row.
  int64_t index(int64_t micro, int64_t row) const {
    return (micro * world + rank) * micro_batch + row;
  }
};

// Returns the number of global batches in one pass over all samples, the same on every rank.
int64_t num_eval_batches(int64_t num_samples, const BatchPartition& partition);

// CollatedBatch is row-major [rows, length]. Rows are padded to the longest of the batch, rounded
// up and at most seq_len. The CPU's lengths are multiples of 8, a GPU's of 64 up to 2048 and of 128
// above: with samples of at most 2048 tokens that makes 32 lengths instead of 256. Multiples of 128
// from 1024 on would make 24, for 1 % more padding.
struct CollatedBatch {
  int64_t rows = 0;
  int64_t length = 0;
  std::vector<int64_t> tokens;
  std::vector<int64_t> targets;  // kIgnoreIndex: no loss; also everywhere in a kNoSample row
  std::vector<int64_t> samples;  // dataset index of each row, or kNoSample
  // Of each token: where its sample begins in the row; empty if each row is one sample.
  std::vector<int64_t> first_keys;
  std::vector<int64_t> row_tokens;  // of each row, without those that pad it
};

// Returns `length` of a batch of these samples.
int64_t padded_length(const Dataset& dataset, std::span<const int64_t> samples,
                      DeviceKind device = DeviceKind::kCpu);

// Returns `length` of a batch with the longest sample.
int64_t max_row_length(const Dataset& dataset, DeviceKind device = DeviceKind::kCpu);

CollatedBatch collate(const Dataset& dataset, std::span<const int64_t> samples,
                      DeviceKind device = DeviceKind::kCpu);

}  // namespace zeroth::data
