#include "model/micro_batch.h"

#include "base/error.h"

namespace zeroth::model {

std::vector<SeededSample> seeded_samples(const MicroBatch& batch) {
  const int64_t rows = batch.tokens.size(0), seq = batch.tokens.size(1);
  std::vector<SeededSample> samples;
  const auto add = [&](int64_t begin) {
    if (!samples.empty()) samples.back().end = begin;
    samples.push_back({.begin = begin, .end = rows * seq, .seed = 0});
  };
  for (int64_t row = 0; row < rows; ++row) {
    if (!batch.first_keys.defined()) {
      add(row * seq);
      continue;
    }
    const int64_t* const first_keys = batch.first_keys.const_data_ptr<int64_t>() + row * seq;
    for (int64_t t = 0; t < seq; ++t) {
      if (first_keys[t] == t) add(row * seq + t);
    }
  }
  if (samples.size() != batch.sample_seeds.size()) {
    throw Error("dropout needs a seed for each sample from the loader: {} for {} samples",
                batch.sample_seeds.size(), samples.size());
  }
  for (size_t i = 0; i < samples.size(); ++i) samples[i].seed = batch.sample_seeds[i];
  return samples;
}

}  // namespace zeroth::model
