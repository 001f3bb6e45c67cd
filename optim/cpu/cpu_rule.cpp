#include "optim/cpu/cpu_rule.h"

#include "base/error.h"
#include "optim/rule_checks.h"

namespace zeroth::optim {
namespace {

configs::Precision to_precision(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32:
      return configs::Precision::kFp32;
    case torch::kBFloat16:
      return configs::Precision::kBf16;
    case torch::kFloat16:
      return configs::Precision::kFp16;
    default:
      throw InternalError(fmt::format("a chunk of {}", c10::toString(tensor.scalar_type())));
  }
}

}  // namespace

void CpuRule::apply(const Chunk& chunk, const UpdateStep& step) const {
  check_arguments(*this, chunk, step);
  ZEROTH_CHECK(chunk.master.is_cpu(), "a chunk on {}", chunk.master.device().str());
  CpuChunk cpu_chunk = {.count = chunk.master.numel(),
                        .master = chunk.master.mutable_data_ptr(),
                        .grad = chunk.grad.const_data_ptr(),
                        .grad_type = to_precision(chunk.grad),
                        .first_element = chunk.first_element,
                        .offsets = chunk.offsets};
  for (size_t i = 0; i < chunk.states.size(); ++i) {
    cpu_chunk.states.at(i) = chunk.states[i].mutable_data_ptr();
  }
  if (chunk.copy.defined()) {
    cpu_chunk.copy = chunk.copy.mutable_data_ptr();
    cpu_chunk.copy_type = to_precision(chunk.copy);
  }
  update_.apply(cpu_chunk, step);
}

}  // namespace zeroth::optim
