// The index of the full model's parameters, each once, however ranks share it; counts, checkpoints
// and files are planned from it.
#pragma once

#include <c10/util/accumulate.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "optim/element_offsets.h"
#include "zero/unit.h"

namespace zeroth::zero {

struct GlobalParameter {
  std::string name;
  std::vector<int64_t> shape;
  bool trainable = true;
  bool is_saved = true;           // Unit::is_saved
  bool keep_in_fp32 = false;      // model::Block::keep_in_fp32() has it
  size_t block = 0;               // first block that uses it
  std::vector<SlotIndex> slices;  // slices on this rank: one, or those of a fused matrix

  int64_t numel() const { return c10::multiply_integers(shape); }
  // Returns whether it has two dimensions or more, like Slot::is_matrix().
  bool is_matrix() const { return shape.size() > 1; }
};

// Returns the parameters in the order of one unsharded rank, unit by unit. The same on all ranks,
// except for the slices.
std::vector<GlobalParameter> global_parameters(const UnitPlan& plan);

// Returns, per [unit], the global offsets of the elements of Unit::owned_range(), which seed the
// rounding of values kept in bf16: an element's offset in its global parameter, plus the sizes of
// all parameters before it. They do not depend on the number of ranks or on how these shard the
// model. One span if the rank owns every parameter in full.
std::vector<std::vector<optim::OffsetSpan>> element_offsets(const UnitPlan& plan);

}  // namespace zeroth::zero
