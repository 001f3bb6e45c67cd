// Whole parameters out of the boxes that the ranks of axis tensor hold.
#pragma once

#include <torch/types.h>

#include <vector>

#include "base/box_rows.h"
#include "comm/mesh.h"
#include "zero/catalogue.h"

namespace zeroth::engine {

class BoxJoiner {
 public:
  // Tells all ranks of the mesh which boxes this one holds, and learns theirs; nothing where axis
  // tensor has one rank.
  BoxJoiner(const zero::UnitPlan& plan, const std::vector<zero::WholeParameter>& parameters,
            const comm::Mesh& mesh);

  // Parameter number `index` of those: `own` are its boxes() of this rank, on the mesh's device.
  // Collective over this rank's group of axis tensor, of which all get it.
  torch::Tensor join(size_t index, const std::vector<torch::Tensor>& own) const;
  // Whether this rank is rank 0 or shares layers with it, which asks the others of its group alone.
  bool serves_first() const;

 private:
  using Boxes = std::vector<std::vector<TensorBox>>;  // of a rank: by parameter

  const std::vector<zero::WholeParameter>& parameters_;
  const comm::Mesh& mesh_;
  std::vector<Boxes> of_ranks_;  // of that group; empty: it is one rank
};

}  // namespace zeroth::engine
