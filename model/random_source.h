// RandomSource gives initial values without a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/spec.h"
#include "model/weight_source.h"

namespace zeroth::model {

// A RandomSource draws normal(0, initializer_range); weights of norms are 1, biases 0, the padding
// token's row of the embedding 0; GPT-2's products into the residual stream are divided by sqrt(2
// layers). A value depends on seed, parameter name and element index in the full parameter alone,
// not on how it is read or split.
class RandomSource : public WeightSource {
 public:
  RandomSource(const ModelSpec& spec, uint64_t seed);

  void check(const std::string& name, const std::vector<int64_t>& shape) override;
  void read(const ParamSlice& part, torch::Tensor out) override;

 private:
  double deviation(const std::string& name) const;

  uint64_t seed_;
  int64_t padding_token_;
  double initializer_range_;
  double residual_range_;
};

}  // namespace zeroth::model
