// SliceGatherer: full parameters from the slices that the ranks of mesh dim tp hold.
#pragma once

#include <torch/types.h>

#include <vector>

#include "base/tensor_slice.h"
#include "comm/device_mesh.h"
#include "zero/parameter_index.h"

namespace zeroth::engine {

class SliceGatherer {
 public:
  // Exchanges, with all ranks of the mesh, which slices each one holds; does nothing if mesh dim tp
  // has one rank.
  SliceGatherer(const zero::UnitPlan& plan, const std::vector<zero::GlobalParameter>& parameters,
                const comm::DeviceMesh& mesh);

  // Returns the full parameter number `index` of `parameters` on all ranks of this rank's
  // tensor-parallel group. `own` are this rank's slices() of it, on the mesh's device. Collective
  // over that group.
  torch::Tensor gather(size_t index, const std::vector<torch::Tensor>& own) const;
  // Returns whether this rank is rank 0 or in its tensor-parallel group, whose ranks alone must
  // call gather() for rank 0.
  bool gathers_for_rank_0() const;

 private:
  using RankSlices = std::vector<std::vector<TensorSlice>>;  // of a rank, by parameter

  const std::vector<zero::GlobalParameter>& parameters_;
  const comm::DeviceMesh& mesh_;
  std::vector<RankSlices> group_slices_;  // of the tensor-parallel group; empty: it has one rank
};

}  // namespace zeroth::engine
