#include "engine/step/slice_gatherer.h"

#include <ATen/ops/empty.h>

#include <sstream>

#include "base/error.h"
#include "comm/cpu_collectives.h"

namespace zeroth::engine {
namespace {

using RankSlices = std::vector<std::vector<TensorSlice>>;

RankSlices local_slices(const zero::UnitPlan& plan,
                        const std::vector<zero::GlobalParameter>& parameters) {
  RankSlices slices;
  for (const zero::GlobalParameter& parameter : parameters) {
    auto& own = slices.emplace_back();
    for (const zero::SlotIndex& place : parameter.slices) {
      own.push_back(zero::slice_of(plan.units[place.unit].layout.slots()[place.slot]));
    }
  }
  return slices;
}

// Serializes the begins and extents of slices; names and shapes are the same on all ranks.
std::string to_string(const RankSlices& slices) {
  std::string text;
  for (const auto& of_parameter : slices) {
    for (const TensorSlice& box : of_parameter) {
      for (const int64_t begin : box.offsets) text += std::to_string(begin) + " ";
      for (const int64_t extent : box.sizes) text += std::to_string(extent) + " ";
    }
  }
  return text;
}

// Parses to_string()'s result. `like` is this rank's own slices, which provide all but begins and
// extents.
RankSlices parse(const std::string& text, const RankSlices& like) {
  RankSlices slices = like;
  std::istringstream words(text);
  for (auto& of_parameter : slices) {
    for (TensorSlice& box : of_parameter) {
      for (int64_t& begin : box.offsets) words >> begin;
      for (int64_t& extent : box.sizes) words >> extent;
    }
  }
  std::string rest;
  if (!words || words >> rest) {
    throw Error("saving: ranks that share layers hold slices of different parameters");
  }
  return slices;
}

void copy_slice(const torch::Tensor& values, const TensorSlice& box, torch::Tensor whole) {
  for (size_t i = 0; i < box.offsets.size(); ++i) {
    whole = whole.narrow(static_cast<int64_t>(i), box.offsets[i], box.sizes[i]);
  }
  whole.copy_(values);
}

}  // namespace

SliceGatherer::SliceGatherer(const zero::UnitPlan& plan,
                             const std::vector<zero::GlobalParameter>& parameters,
                             const comm::DeviceMesh& mesh)
    : parameters_(parameters), mesh_(mesh) {
  if (mesh.layout().shape()[comm::MeshDim::kTp] == 1) return;
  const RankSlices own = local_slices(plan, parameters);
  const auto texts =
      comm::all_gather_strings(to_string(own), "boxes of parameters", mesh.cpu_group());
  const comm::Partition along = mesh.layout().along({comm::MeshDim::kTp});
  for (const int rank : along.part_of(mesh.rank())) {
    group_slices_.push_back(parse(texts[static_cast<size_t>(rank)], own));
  }
  mesh.group({comm::MeshDim::kTp});  // collective creation of the group
}

torch::Tensor SliceGatherer::gather(size_t index, const std::vector<torch::Tensor>& own) const {
  const zero::GlobalParameter& parameter = parameters_[index];
  const TensorSlice all = TensorSlice::full(parameter.shape);
  const auto has_all = [&](const RankSlices& slices) { return slices[index].front() == all; };
  if (std::all_of(group_slices_.begin(), group_slices_.end(), has_all)) return own.front();
  comm::Group& group = mesh_.group({comm::MeshDim::kTp});
  const torch::Tensor whole = at::empty(parameter.shape, own.front().options());
  for (size_t b = 0; b < own.size(); ++b) {
    for (size_t rank = 0; rank < group_slices_.size(); ++rank) {
      const TensorSlice& box = group_slices_[rank][index][b];
      if (rank > 0 && box == group_slices_[rank - 1][index][b]) continue;  // replicas are neighbors
      const bool mine = static_cast<int>(rank) == group.rank();
      const torch::Tensor values =
          mine ? own[b].contiguous() : at::empty(box.sizes, own[b].options());
      group.broadcast(values, static_cast<int>(rank), "boxes of " + parameter.name).wait();
      copy_slice(values, box, whole);
    }
  }
  return whole;
}

// Mesh dim tp is the last one, so that ranks that share layers are neighbors.
bool SliceGatherer::gathers_for_rank_0() const {
  return mesh_.rank() == mesh_.coordinate(comm::MeshDim::kTp);
}

}  // namespace zeroth::engine
