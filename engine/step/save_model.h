// Saving of a model's full parameters, block by block.
#pragma once

#include <vector>

#include "base/tensor_slice.h"
#include "comm/device_mesh.h"
#include "device/tensor.h"
#include "engine/state/model_sink.h"
#include "engine/step/block_runner.h"
#include "zero/parameter_index.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::engine {

// Passes every full parameter to `sink` on rank 0, or on the first rank of its pipeline stage
// (ModelSink::join); the other ranks take part in the gathers. Collective. Values are those of the
// blocks in the dtype `working`, or, if `masters` is set, fp32: its masters of trainable
// parameters, and the other parameters widened.
void save_model(BlockRunner& runner, const zero::UnitPlan& plan, zero::ShardedOptimizer* masters,
                torch::Dtype working, comm::DeviceMesh& mesh, ModelSink& sink);

// Passes the parameters of saved units (zero::Unit::is_saved) in `dtype` to `sink`, like
// save_model(), and gathers no other units.
void save_trained(const zero::UnitPlan& plan, zero::ShardedOptimizer& masters, torch::Dtype dtype,
                  comm::DeviceMesh& mesh, ModelSink& sink);

// RankSlices is what a rank holds of each parameter.
using RankSlices = std::vector<std::vector<TensorSlice>>;

// SliceGatherer makes full parameters from the slices that the ranks of mesh dim tp hold.
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

 private:
  const std::vector<zero::GlobalParameter>& parameters_;
  const comm::DeviceMesh& mesh_;
  std::vector<RankSlices> group_slices_;  // of the tensor-parallel group; empty: it has one rank
};

}  // namespace zeroth::engine
