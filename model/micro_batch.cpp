#include "model/micro_batch.h"

#include "base/error.h"

namespace zeroth::model {

std::vector<int64_t> sample_begins(const torch::Tensor& first_keys) {
  const int64_t rows = first_keys.size(0), seq = first_keys.size(1);
  const int64_t* const keys = first_keys.const_data_ptr<int64_t>();
  std::vector<int64_t> begins;
  for (int64_t token = 0; token < rows * seq; ++token) {
    if (keys[token] == token % seq) begins.push_back(token);
  }
  return begins;
}

std::vector<SeededSample> seeded_samples(const MicroBatch& batch) {
  const int64_t rows = batch.tokens.size(0), seq = batch.tokens.size(1);
  std::vector<SeededSample> samples;
  const auto add = [&](int64_t begin) {
    if (!samples.empty()) samples.back().end = begin;
    samples.push_back({.begin = begin, .end = rows * seq, .seed = 0});
  };
  if (batch.first_keys.defined()) {
    for (const int64_t begin : sample_begins(batch.first_keys)) add(begin);
  } else {
    for (int64_t row = 0; row < rows; ++row) add(row * seq);
  }
  if (samples.size() != batch.sample_seeds.size()) {
    throw Error("dropout needs a seed for each sample from the loader: {} for {} samples",
                batch.sample_seeds.size(), samples.size());
  }
  for (size_t i = 0; i < samples.size(); ++i) samples[i].seed = batch.sample_seeds[i];
  return samples;
}

}  // namespace zeroth::model
