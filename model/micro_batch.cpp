#include "model/micro_batch.h"

#include "base/error.h"

namespace zeroth::model {

std::vector<SeededSample> seeded_samples(const MicroBatch& batch) {
  const int64_t rows = batch.tokens.size(0), seq = batch.tokens.size(1);
  std::vector<SeededSample> samples;
  const int64_t* first_keys =
      batch.first_keys.defined() ? batch.first_keys.const_data_ptr<int64_t>() : nullptr;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t < seq; ++t) {
      const int64_t token = row * seq + t;
      if (first_keys == nullptr ? t > 0 : first_keys[token] != t) continue;
      if (!samples.empty()) samples.back().end = token;
      samples.push_back({.begin = token, .end = rows * seq, .seed = 0});
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
