// The index of the full model's parameters, each once, however ranks share it; counts, checkpoints
// and files are planned from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor_slice.h"
#include "zero/unit.h"

namespace zeroth::zero {

// Returns the slice of its global parameter that a slot holds.
TensorSlice slice_of(const Slot& slot);

struct GlobalParameter {
  std::string name;
  std::vector<int64_t> shape;
  bool trainable = true;
  size_t block = 0;               // first block that uses it
  std::vector<SlotIndex> slices;  // slices on this rank: one, or those of a fused matrix

  int64_t numel() const;
  // Returns whether it has two dimensions or more, like GlobalTensor.
  bool is_matrix() const { return shape.size() > 1; }
};

// Returns the parameters in the order of one unsharded rank, unit by unit. The same on all ranks,
// except for the slices.
std::vector<GlobalParameter> global_parameters(const UnitPlan& plan);

}  // namespace zeroth::zero
