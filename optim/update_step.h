// What may differ from update to update and from range to range, for every optimizer.
#pragma once

#include <array>
#include <cstdint>

namespace zeroth::optim {

struct UpdateStep {
  int64_t update = 1;  // its number, from 1
  double lr = 0;
  std::array<double, 2> betas = {0.9, 0.999};  // read by Adam and Lion
  double weight_decay = 0;
  double grad_factor = 1;      // unscaling and clipping in one; finite and above 0
  uint64_t rounding_seed = 0;  // of what rests in bf16
};

}  // namespace zeroth::optim
