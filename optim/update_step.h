// What may differ from update to update and from stretch to stretch, for every optimizer.
#pragma once

#include <array>
#include <cstdint>

namespace zeroth::optim {

struct UpdateStep {
  int64_t update = 1;  // its number, from 1
  double lr = 0;
  std::array<double, 2> betas = {0.9, 0.999};  // read by Adam, Lion and Lamb
  double weight_decay = 0;
  double grad_factor = 1;      // unscaling and clipping in one; finite and above 0
  uint64_t rounding_seed = 0;  // of what rests in bf16
};

// Elements [begin, end) of a flat buffer, or of a tile of it, that decay alike.
struct ParamGroupRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool decays = true;     // false: as if UpdateStep::weight_decay were 0
  int64_t parameter = 0;  // whose these elements are: its row in tensors of norms
  bool operator==(const ParamGroupRange&) const = default;
};

}  // namespace zeroth::optim
