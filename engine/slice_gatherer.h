// Whole parameters out of the boxes that the ranks of axis tensor hold.
#pragma once

#include <torch/types.h>

#include <vector>

#include "base/tensor_slice.h"
#include "comm/device_mesh.h"
#include "zero/parameter_index.h"

namespace zeroth::engine {

class SliceGatherer {
 public:
  // Tells all ranks of the mesh which boxes this one holds, and learns theirs; nothing where axis
  // tensor has one rank.
  SliceGatherer(const zero::UnitPlan& plan, const std::vector<zero::GlobalParameter>& parameters,
                const comm::DeviceMesh& mesh);

  // Parameter number `index` of those: `own` are its slices() of this rank, on the mesh's device.
  // Collective over this rank's group of axis tensor, of which all get it.
  torch::Tensor gather(size_t index, const std::vector<torch::Tensor>& own) const;
  // Whether this rank is rank 0 or shares layers with it, which asks the others of its group alone.
  bool gathers_for_rank_0() const;

 private:
  using RankSlices = std::vector<std::vector<TensorSlice>>;  // of a rank: by parameter

  const std::vector<zero::GlobalParameter>& parameters_;
  const comm::DeviceMesh& mesh_;
  std::vector<RankSlices> group_slices_;  // of that group; empty: it is one rank
};

}  // namespace zeroth::engine
