// The CUDA kernel of the operator zeroth::update_ (optim/device_rule.h). Loading the library
// registers it.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "optim/device_step.h"
#include "optim/gpu/update.h"

namespace zeroth::optim::kernel {
namespace {

using torch::Tensor;

Format format_of(const Tensor& x) {
  if (x.scalar_type() == torch::kFloat32) return kFp32;
  return x.scalar_type() == torch::kBFloat16 ? kBf16 : kFp16;
}

bool aligned(const Tensor& x) {
  const auto four = 4 * static_cast<uintptr_t>(x.element_size());
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % four == 0;
}

// The range is checked by the caller; `words` are those of a DeviceStep.
void update_cuda(const Tensor& master, const Tensor& grad, at::TensorList states,
                 const std::optional<Tensor>& copy, at::IntArrayRef words) {
  Words numbers;
  ZEROTH_CHECK(words.size() == numbers.size() && states.size() <= 2, "{} words, {} states",
               words.size(), states.size());
  if (master.numel() == 0) return;
  std::copy(words.begin(), words.end(), numbers.begin());
  const DeviceStep step = step_of(numbers);
  ZEROTH_CHECK(states.size() == states_of(step.formula), "{} states of formula {}", states.size(),
               static_cast<int>(step.formula));
  DeviceUpdate update;
  update.constants = step.constants;
  update.number = step.number;
  std::copy(std::begin(step.keys), std::end(step.keys), update.keys);
  update.count = master.numel();
  update.master = master.data_ptr();
  update.grad = grad.const_data_ptr();
  update.grad_format = format_of(grad);
  update.aligned = aligned(master) && aligned(grad);
  for (size_t i = 0; i < states.size(); ++i) {
    update.states[i] = states[i].data_ptr();
    update.aligned = update.aligned && aligned(states[i]);
  }
  if (copy) {
    update.copy = copy->data_ptr();
    update.copy_format = format_of(*copy);
    update.aligned = update.aligned && aligned(*copy);
  }
  Rest rest;
  rest.bf16_master = format_of(master) == kBf16;
  rest.bf16_states = !states.empty() && format_of(states[0]) == kBf16;
  const c10::cuda::CUDAGuard guard(master.device());
  launch_update(step.formula, rest, update,
                c10::cuda::getCurrentCUDAStream(master.device().index()).stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

TORCH_LIBRARY_IMPL(zeroth, CUDA, library) {
  library.impl("update_", update_cuda);
}

}  // namespace zeroth::optim::kernel
