#include "zero/global_sums.h"

#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <string>
#include <vector>

namespace zeroth::zero {
namespace {

using comm::MeshDim;

// Returns rows of which each is the sum over all slots that hold slices of its parameter.
torch::Tensor sum_slices(const FlatLayout& layout, const torch::Tensor& rows) {
  std::map<std::string, int64_t> first_of;
  std::vector<int64_t> first;  // [slot]
  for (const Slot& slot : layout.slots()) {
    first.push_back(first_of.try_emplace(slot.global.name, std::ssize(first)).first->second);
  }
  if (first_of.size() == first.size()) return rows;
  const torch::Tensor index = at::tensor(first, torch::kLong).to(rows.device());
  return at::index_select(at::index_add(at::zeros_like(rows), 0, index, rows), 0, index);
}

}  // namespace

torch::Tensor global_sums(const Unit& unit, torch::Tensor own, const comm::DeviceMesh& mesh) {
  const torch::Tensor sums = sum_slices(unit.layout, own);
  const std::string what = "norms of " + unit.label();
  const bool cut = unit.owned_range().size() < unit.layout.numel();
  if (unit.num_replicas == mesh.layout().shape()[MeshDim::kTp]) {
    if (cut)
      mesh.shard_group(unit.num_replicas).all_reduce(sums, comm::ReduceOp::kSum, what).wait();
    return sums;
  }
  // If parameters are not cut over dp, every replica has the slice's sum: one of them contributes
  // it.
  if (!cut && mesh.coordinate(MeshDim::kTp) % unit.num_replicas != 0) sums.zero_();
  comm::Group& ranks =
      mesh.group(cut ? comm::MeshDims{MeshDim::kDp, MeshDim::kTp} : comm::MeshDims{MeshDim::kTp});
  ranks.all_reduce(sums, comm::ReduceOp::kSum, what).wait();
  return sums;
}

}  // namespace zeroth::zero
