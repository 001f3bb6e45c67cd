#include "tests/equivalence/samples.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"

namespace zeroth::equivalence {
namespace {

constexpr int64_t kLength = 32;
constexpr int64_t kVocab = 64;

int64_t token(int64_t sample, int64_t position) {
  const int64_t value =
      sample * 37 + position * (sample % 5 - 1) + position * position * (sample % 3);
  return ((value % kVocab) + kVocab) % kVocab;
}

// Two samples of eight have no trained target, the others leave out between none and most.
bool is_trained(int64_t sample, int64_t position) {
  return sample % 8 < 6 && (sample * 5 + position * 3) % 11 >= sample % 9;
}

int64_t length_of(int64_t sample, Samples samples) {
  return samples == Samples::kFull ? kLength : 1 + sample * 7 % 13;
}

// Places the samples of a micro-batch in rows, in their order.
std::vector<std::vector<int64_t>> rows_of(const std::vector<int64_t>& members, bool packed) {
  constexpr std::array<size_t, 3> kPackedRows = {3, 1, 2};  // samples in a row, from the first on
  std::vector<std::vector<int64_t>> rows;
  for (auto next = members.begin(); next != members.end();) {
    const size_t wanted = packed ? kPackedRows[rows.size() % kPackedRows.size()] : 1;
    const auto end = next + std::min<int64_t>(static_cast<int64_t>(wanted), members.end() - next);
    rows.emplace_back(next, end);
    next = end;
  }
  return rows;
}

// The longest row, as on the CPU rounded up to a multiple of 8.
int64_t padded_length(const std::vector<std::vector<int64_t>>& rows, Samples samples) {
  int64_t longest = 0;
  for (const std::vector<int64_t>& row : rows) {
    int64_t length = 0;
    for (const int64_t sample : row) length += length_of(sample, samples);
    longest = std::max(longest, length);
  }
  ZEROTH_CHECK(longest <= kLength, "{} tokens in a row of {}", longest, kLength);
  return (longest + 7) / 8 * 8;
}

}  // namespace

std::vector<int64_t> SampleLoader::next_samples() {
  const int64_t count = kGlobalBatch / (split_.accumulation * split_.world_size);
  const int64_t step = drawn_ / split_.accumulation;
  const int64_t micro = drawn_++ % split_.accumulation;
  const int64_t first = step * kGlobalBatch + (micro * split_.world_size + split_.rank) * count;
  std::vector<int64_t> members;
  for (int64_t i = 0; i < count; ++i) {
    members.push_back(first + (split_.reversed ? count - 1 - i : i));
  }
  return members;
}

// Builds what trainer/batch_loader.cpp does: what follows the last sample of a row belongs to it.
model::MicroBatch SampleLoader::next() {
  const bool packed = split_.samples == Samples::kPacked;
  const auto rows = rows_of(next_samples(), packed);
  const int64_t length = padded_length(rows, split_.samples);
  model::MicroBatch batch;
  batch.tokens = torch::zeros({std::ssize(rows), length}, torch::kLong);
  batch.targets = torch::full_like(batch.tokens, model::kIgnoreIndex);
  torch::Tensor first_keys = torch::zeros_like(batch.tokens);
  auto tokens = batch.tokens.accessor<int64_t, 2>();
  auto targets = batch.targets.accessor<int64_t, 2>();
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    batch.samples.push_back(rows[static_cast<size_t>(row)].front());
    int64_t begin = 0;
    for (const int64_t sample : rows[static_cast<size_t>(row)]) {
      batch.sample_seeds.push_back(sample * 1'000'003);
      first_keys[row].narrow(0, begin, length - begin).fill_(begin);
      const int64_t tokens_of_sample = length_of(sample, split_.samples);
      for (int64_t t = 0; t < tokens_of_sample; ++t) {
        tokens[row][begin + t] = token(sample, t);
        const bool trained = !split_.masked || is_trained(sample, t);
        targets[row][begin + t] = trained ? token(sample, t + 1) : model::kIgnoreIndex;
      }
      begin += tokens_of_sample;
    }
  }
  if (!packed) return batch;
  batch.positions = torch::arange(length) - first_keys;
  if (!split_.sees_neighbors) batch.first_keys = std::move(first_keys);
  return batch;
}

}  // namespace zeroth::equivalence
