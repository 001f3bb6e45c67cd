#include "optim/host_rule.h"

#include "base/error.h"
#include "optim/range_checks.h"

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
      throw InternalError(fmt::format("a range of {}", c10::toString(tensor.scalar_type())));
  }
}

}  // namespace

void HostRule::apply(const Range& range, const Step& step) const {
  check_arguments(*this, range, step);
  ZEROTH_CHECK(range.master.is_cpu(), "a range on {}", range.master.device().str());
  HostTile tile = {.count = range.master.numel(),
                   .master = range.master.mutable_data_ptr(),
                   .grad = range.grad.const_data_ptr(),
                   .grad_type = precision_of(range.grad),
                   .first_element = range.first_element};
  for (size_t i = 0; i < range.states.size(); ++i) {
    tile.states.at(i) = range.states[i].mutable_data_ptr();
  }
  if (range.copy.defined()) {
    tile.copy = range.copy.mutable_data_ptr();
    tile.copy_type = precision_of(range.copy);
  }
  update_.apply(tile, step);
}

}  // namespace zeroth::optim
