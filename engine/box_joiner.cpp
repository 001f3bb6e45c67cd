#include "engine/box_joiner.h"

#include <ATen/ops/empty.h>

#include <sstream>

#include "base/error.h"
#include "comm/agreement.h"

namespace zeroth::engine {
namespace {

using Boxes = std::vector<std::vector<TensorBox>>;

Boxes boxes_of(const zero::UnitPlan& plan, const std::vector<zero::WholeParameter>& parameters) {
  Boxes boxes;
  for (const zero::WholeParameter& parameter : parameters) {
    auto& own = boxes.emplace_back();
    for (const zero::SlotPlace& place : parameter.boxes) {
      own.push_back(zero::box_of(plan.units[place.unit].layout.slots()[place.slot]));
    }
  }
  return boxes;
}

// Names and shapes are the same on all ranks, where boxes begin and end are not.
std::string text_of(const Boxes& boxes) {
  std::string text;
  for (const auto& of_parameter : boxes) {
    for (const TensorBox& box : of_parameter) {
      for (const int64_t begin : box.begin) text += std::to_string(begin) + " ";
      for (const int64_t extent : box.extent) text += std::to_string(extent) + " ";
    }
  }
  return text;
}

// `alike`: this rank's own, of which all but begins and extents is kept.
Boxes parse(const std::string& text, const Boxes& alike) {
  Boxes boxes = alike;
  std::istringstream words(text);
  for (auto& of_parameter : boxes) {
    for (TensorBox& box : of_parameter) {
      for (int64_t& begin : box.begin) words >> begin;
      for (int64_t& extent : box.extent) words >> extent;
    }
  }
  std::string rest;
  if (!words || words >> rest) {
    throw Error("saving: ranks that share layers hold boxes of different parameters");
  }
  return boxes;
}

void put(const torch::Tensor& values, const TensorBox& box, torch::Tensor whole) {
  for (size_t i = 0; i < box.begin.size(); ++i) {
    whole = whole.narrow(static_cast<int64_t>(i), box.begin[i], box.extent[i]);
  }
  whole.copy_(values);
}

}  // namespace

BoxJoiner::BoxJoiner(const zero::UnitPlan& plan,
                     const std::vector<zero::WholeParameter>& parameters, const comm::Mesh& mesh)
    : parameters_(parameters), mesh_(mesh) {
  if (mesh.grid().shape()[comm::Axis::kTensor] == 1) return;
  const Boxes own = boxes_of(plan, parameters);
  const auto texts = comm::gather_texts(text_of(own), "boxes of parameters", mesh.host());
  const comm::Partition along = mesh.grid().along({comm::Axis::kTensor});
  for (const int rank : along.part_of(mesh.rank())) {
    of_ranks_.push_back(parse(texts[static_cast<size_t>(rank)], own));
  }
  mesh.group({comm::Axis::kTensor});  // all ranks make it together
}

torch::Tensor BoxJoiner::join(size_t index, const std::vector<torch::Tensor>& own) const {
  const zero::WholeParameter& parameter = parameters_[index];
  const TensorBox all = TensorBox::whole(parameter.shape);
  const auto has_all = [&](const Boxes& boxes) { return boxes[index].front() == all; };
  if (std::all_of(of_ranks_.begin(), of_ranks_.end(), has_all)) return own.front();
  comm::Group& group = mesh_.group({comm::Axis::kTensor});
  const torch::Tensor whole = at::empty(parameter.shape, own.front().options());
  for (size_t b = 0; b < own.size(); ++b) {
    for (size_t rank = 0; rank < of_ranks_.size(); ++rank) {
      const TensorBox& box = of_ranks_[rank][index][b];
      if (rank > 0 && box == of_ranks_[rank - 1][index][b]) continue;  // copies are neighbours
      const bool mine = static_cast<int>(rank) == group.rank();
      const torch::Tensor values =
          mine ? own[b].contiguous() : at::empty(box.extent, own[b].options());
      group.broadcast(values, static_cast<int>(rank), "boxes of " + parameter.name).wait();
      put(values, box, whole);
    }
  }
  return whole;
}

// Axis tensor is the last one: ranks that share layers are neighbours.
bool BoxJoiner::serves_first() const {
  return mesh_.rank() == mesh_.coordinate(comm::Axis::kTensor);
}

}  // namespace zeroth::engine
