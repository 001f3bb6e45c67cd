#include "optim/host_rule.h"

#include "base/error.h"
#include "optim/rule_checks.h"

namespace zeroth::optim {
namespace {

configs::Precision precision_of(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32:
      return configs::Precision::kFp32;
    case torch::kBFloat16:
      return configs::Precision::kBf16;
    case torch::kFloat16:
      return configs::Precision::kFp16;
    default:
      throw InternalError(fmt::format("a tile of {}", c10::toString(tensor.scalar_type())));
  }
}

}  // namespace

void HostRule::apply(const Tile& tile, const UpdateStep& step) const {
  check_arguments(*this, tile, step);
  ZEROTH_CHECK(tile.master.is_cpu(), "a tile on {}", tile.master.device().str());
  HostTile host = {.count = tile.master.numel(),
                   .master = tile.master.mutable_data_ptr(),
                   .grad = tile.grad.const_data_ptr(),
                   .grad_type = precision_of(tile.grad),
                   .first_element = tile.first_element,
                   .numbers = tile.numbers};
  for (size_t i = 0; i < tile.states.size(); ++i) {
    host.states.at(i) = tile.states[i].mutable_data_ptr();
  }
  if (tile.copy.defined()) {
    host.copy = tile.copy.mutable_data_ptr();
    host.copy_type = precision_of(tile.copy);
  }
  update_.apply(host, step);
}

}  // namespace zeroth::optim
