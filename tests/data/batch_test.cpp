#include "data/samples/batch.h"

#include <algorithm>
#include <set>

#include "data/samples/sample_order.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::batch_test {

namespace {

// Sample i has i + 1 positions with tokens 100 + i; its last target alone is trained.
class Stairs : public Dataset {
 public:
  explicit Stairs(int64_t size, int64_t seq_len = 20) : size_(size), seq_len_(seq_len) {}
  int64_t size() const override { return size_; }
  int64_t seq_len() const override { return seq_len_; }
  int64_t length(int64_t index) const override { return index + 1; }
  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    std::fill(tokens.begin(), tokens.end(), 100 + index);
    std::fill(targets.begin(), targets.end(), kIgnoreIndex);
    targets[index] = 7;
  }
  std::string sample_name(int64_t index) const override { return std::to_string(index); }
  DatasetStats stats() const override { return {}; }

 private:
  int64_t size_, seq_len_;
};

// Lengths of an epoch of batches of four of its samples.
std::set<int64_t> lengths_of(const Dataset& dataset, DeviceKind device) {
  const SampleOrder order(dataset.size(), 1, true);
  std::set<int64_t> lengths;
  for (int64_t first = 0; first < dataset.size(); first += 4) {
    const auto samples = order.samples(first, 4);
    const int64_t length = padded_length(dataset, samples, device);
    CHECK(length == collate(dataset, samples, device).length);
    lengths.insert(length);
  }
  return lengths;
}

}  // namespace

TEST_CASE("Any world deals the same global batch, by micro-step, rank and row") {
  const SampleOrder order(1000, 42, true);
  for (const auto& [world, micro_steps] : {std::pair{1, 1}, {1, 6}, {2, 3}, {3, 4}, {4, 1}}) {
    std::vector<int64_t> assigned;
    BatchPartition partition{
        .micro_batch = 24 / (world * micro_steps), .micro_steps = micro_steps, .world = world};
    for (int64_t micro = 0; micro < micro_steps; ++micro) {
      for (partition.rank = 0; partition.rank < world; ++partition.rank) {
        for (int64_t row = 0; row < partition.micro_batch; ++row) {
          const int64_t index = partition.index(micro, row);
          CHECK(index < partition.global_batch());
          assigned.push_back(order.at(3 * partition.global_batch() + index));
        }
      }
    }
    CHECK(assigned == order.samples(72, 24));
  }
}

TEST_CASE("An evaluation pass sees every sample once and every rank runs the same rounds") {
  for (const int64_t samples : {1, 5, 12, 13, 200}) {
    for (const int64_t world : {1, 2, 3, 4}) {
      std::vector<int64_t> seen;
      BatchPartition partition{.micro_batch = 3, .world = world};
      const SampleOrder order(samples, 0, false, {.end = samples});
      const int64_t rounds = num_eval_batches(samples, partition);
      for (int64_t round = 0; round < rounds; ++round) {
        for (partition.rank = 0; partition.rank < world; ++partition.rank) {
          const int64_t first = round * partition.global_batch() + partition.index(0, 0);
          for (const int64_t sample : order.samples(first, partition.micro_batch)) {
            if (sample != kNoSample) seen.push_back(sample);
          }
        }
      }
      CHECK(std::ssize(seen) == samples);
      CHECK(std::is_sorted(seen.begin(), seen.end()));
      CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
      CHECK(order.at((rounds - 1) * partition.global_batch()) != kNoSample);
    }
  }
}

TEST_CASE("Rows are padded to the longest, rounded up to 8 and at most the window") {
  const Stairs dataset(20);
  CHECK(collate(dataset, std::vector<int64_t>{0, 4}).length == 8);
  CHECK(collate(dataset, std::vector<int64_t>{0, 8}).length == 16);
  CHECK(collate(dataset, std::vector<int64_t>{18}).length == 20);
}

TEST_CASE("A GPU is given few lengths, the longest of which is the window") {
  const Stairs dataset(2048, 2048);
  const auto on_cpu = lengths_of(dataset, DeviceKind::kCpu);
  const auto on_gpu = lengths_of(dataset, DeviceKind::kGpu);
  CHECK(on_cpu.size() > 150);
  CHECK(on_gpu.size() <= 2048 / 64);
  CHECK(std::all_of(on_gpu.begin(), on_gpu.end(), [](auto length) { return length % 64 == 0; }));
  CHECK(max_row_length(Stairs(2000, 2040), DeviceKind::kGpu) == 2040);
  CHECK(max_row_length(Stairs(2049, 8192), DeviceKind::kGpu) == 2048 + 128);
  CHECK(max_row_length(Stairs(2049, 8192), DeviceKind::kCpu) == 2048 + 8);
}

TEST_CASE("A batch lays its rows one after the other") {
  const Stairs dataset(20);
  const CollatedBatch batch = collate(dataset, std::vector<int64_t>{2, 0});
  CHECK(batch.rows == 2);
  REQUIRE(batch.tokens.size() == 16);
  CHECK(batch.tokens[0] == 102);
  CHECK(batch.tokens[8] == 100);
  CHECK(batch.targets[2] == 7);
  CHECK(batch.targets[8] == 7);
  CHECK(batch.samples == std::vector<int64_t>{2, 0});
  CHECK(batch.row_tokens == std::vector<int64_t>{dataset.length(2), dataset.length(0)});
  CHECK(std::count(batch.targets.begin(), batch.targets.end(), kIgnoreIndex) == 14);
}

TEST_CASE("Rows without a sample have no trained target, even if all are such") {
  const Stairs dataset(20);
  const CollatedBatch batch = collate(dataset, std::vector<int64_t>{kNoSample, 1, kNoSample});
  CHECK(std::count(batch.targets.begin(), batch.targets.end(), kIgnoreIndex) == 23);
  const CollatedBatch empty = collate(dataset, std::vector<int64_t>{kNoSample, kNoSample});
  CHECK(batch.row_tokens == std::vector<int64_t>{0, dataset.length(1), 0});
  CHECK(empty.length == 8);
  CHECK(std::count(empty.targets.begin(), empty.targets.end(), kIgnoreIndex) == 16);
}

}  // namespace zeroth::data::batch_test
