#include "tests/equivalence/samples.h"

#include <ATen/ATen.h>

#include "tests/equivalence/row.h"

namespace zeroth::equivalence {
namespace {

constexpr int64_t kLength = 32;
constexpr int64_t kVocab = 64;

int64_t token(int64_t sample, int64_t position) {
  const int64_t value =
      sample * 37 + position * (sample % 5 - 1) + position * position * (sample % 3);
  return ((value % kVocab) + kVocab) % kVocab;
}

// Two rows of eight have no trained target, the others leave out between none and most.
bool is_trained(int64_t sample, int64_t position) {
  return sample % 8 < 6 && (sample * 5 + position * 3) % 11 >= sample % 9;
}

}  // namespace

model::MicroBatch SampleLoader::next() {
  const int64_t rows = kGlobalBatch / (split_.accumulation * split_.world_size);
  const int64_t step = drawn_ / split_.accumulation;
  const int64_t micro = drawn_++ % split_.accumulation;
  const int64_t first = step * kGlobalBatch + (micro * split_.world_size + split_.rank) * rows;
  model::MicroBatch batch;
  batch.tokens = torch::empty({rows, kLength}, torch::kLong);
  batch.targets = torch::empty({rows, kLength}, torch::kLong);
  auto tokens = batch.tokens.accessor<int64_t, 2>();
  auto targets = batch.targets.accessor<int64_t, 2>();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t sample = first + (split_.reversed ? rows - 1 - row : row);
    batch.samples.push_back(sample);
    batch.sample_seeds.push_back(sample * 1'000'003);
    for (int64_t t = 0; t < kLength; ++t) {
      tokens[row][t] = token(sample, t);
      const bool trained = !split_.masked || is_trained(sample, t);
      targets[row][t] = trained ? token(sample, t + 1) : model::kIgnoreIndex;
    }
  }
  return batch;
}

}  // namespace zeroth::equivalence
