// Who has to know before an update changes what a checkpoint keeps.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "zero/flat_layout.h"

namespace zeroth::zero {

class OverwriteObserver {
 public:
  virtual ~OverwriteObserver() = default;
  // Elements `tile` of this rank's range of the unit change once this returns; on a GPU, what is
  // queued on the current stream from then on changes them. `arrays`: the values that they still
  // have, as ShardedOptimizer::arrays(), where the unit is updated. A rule with a norm pass asks
  // once more before the second one, when states have changed already.
  virtual void before_update(size_t unit, const Range& tile,
                             const std::vector<torch::Tensor>& arrays) = 0;
};

}  // namespace zeroth::zero
