#include "zero/whole_sums.h"

#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <string>
#include <vector>

namespace zeroth::zero {
namespace {

using comm::Axis;

// Each row becomes the sum of all whose slots hold boxes of one parameter.
torch::Tensor joined(const FlatLayout& layout, const torch::Tensor& rows) {
  std::map<std::string, int64_t> first_of;
  std::vector<int64_t> first;  // [slot]
  for (const Slot& slot : layout.slots()) {
    first.push_back(first_of.try_emplace(slot.whole.name, std::ssize(first)).first->second);
  }
  if (first_of.size() == first.size()) return rows;
  const torch::Tensor index = at::tensor(first, torch::kLong).to(rows.device());
  return at::index_select(at::index_add(at::zeros_like(rows), 0, index, rows), 0, index);
}

}  // namespace

torch::Tensor sums_of_wholes(const Unit& unit, torch::Tensor own, const comm::Mesh& mesh) {
  const torch::Tensor sums = joined(unit.layout, own);
  const std::string what = "norms of " + unit.label();
  const bool cut = unit.share().size() < unit.layout.numel();
  if (unit.copies == mesh.grid().shape()[Axis::kTensor]) {
    if (cut) mesh.sharing(unit.copies).all_reduce(sums, comm::Reduce::kSum, what).wait();
    return sums;
  }
  // Where shares are not cut each holder has the sum of the box: one of its copies tells it.
  if (!cut && mesh.coordinate(Axis::kTensor) % unit.copies != 0) sums.zero_();
  comm::Group& ranks =
      mesh.group(cut ? comm::Axes{Axis::kData, Axis::kTensor} : comm::Axes{Axis::kTensor});
  ranks.all_reduce(sums, comm::Reduce::kSum, what).wait();
  return sums;
}

}  // namespace zeroth::zero
