// The parameters of the whole model, each once, whatever ranks share it: what is counted, saved and
// planned in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor_slice.h"
#include "zero/unit.h"

namespace zeroth::zero {

// What a slot holds of its whole parameter.
TensorSlice slice_of(const Slot& slot);

struct GlobalParameter {
  std::string name;
  std::vector<int64_t> shape;
  bool trainable = true;
  size_t block = 0;               // the first that uses it
  std::vector<SlotIndex> slices;  // this rank's of it: one, or those of a fused matrix

  int64_t numel() const;
  // As GlobalTensor: with two dimensions or more.
  bool is_matrix() const { return shape.size() > 1; }
};

// In the order in which one rank that shares nothing has them, unit by unit. The same on all ranks,
// but for what the boxes are.
std::vector<GlobalParameter> global_parameters(const UnitPlan& plan);

}  // namespace zeroth::zero
