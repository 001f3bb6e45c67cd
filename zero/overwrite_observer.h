// An observer that is called before an update changes values that a checkpoint saves.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "zero/flat_layout.h"

namespace zeroth::zero {

class OverwriteObserver {
 public:
  virtual ~OverwriteObserver() = default;
  // Called before elements `tile` of this rank's range of the unit change; on a GPU, work queued on
  // the current stream after this call changes them. `arrays`: the values that they still have, in
  // the order of ShardedOptimizer::arrays(), on the device that updates the unit. A rule with a
  // norm pass causes a second call before its second pass, when states have changed already.
  virtual void before_update(size_t unit, const Range& tile,
                             const std::vector<torch::Tensor>& arrays) = 0;
};

}  // namespace zeroth::zero
