// UpdateStep holds what may differ from update to update and between parameter groups, for every
// optimizer.
#pragma once

#include <array>
#include <cstdint>

namespace zeroth::optim {

struct UpdateStep {
  int64_t update = 1;  // number of the update, from 1
  double lr = 0;
  std::array<double, 2> betas = {0.9, 0.999};  // read by Adam, Lion and Lamb
  double weight_decay = 0;
  double grad_factor = 1;      // unscaling and clipping in one; finite and above 0
  uint64_t rounding_seed = 0;  // seeds the rounding to bf16

  UpdateStep without_decay() const {
    UpdateStep step = *this;
    step.weight_decay = 0;
    return step;
  }
};

// A ParamGroupRange is a range [begin, end) of elements of a flat buffer, or of a chunk of it, that
// either all decay or all do not.
struct ParamGroupRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool decays = true;     // false: as if UpdateStep::weight_decay were 0
  int64_t parameter = 0;  // index of the parameter: its row in tensors of norms
  bool operator==(const ParamGroupRange&) const = default;
};

}  // namespace zeroth::optim
