// The CUDA kernel of the operator zeroth::update_ (optim/device_rule.h). Loading the library
// registers it.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>
#include <torch/types.h>

#include <optional>

#include "optim/gpu/pack_update.h"
#include "optim/gpu/update.h"

namespace zeroth::optim::kernel {
namespace {

using torch::Tensor;

void update_cuda(const Tensor& master, const Tensor& grad, at::TensorList states,
                 const std::optional<Tensor>& copy, at::IntArrayRef words) {
  const PackedUpdate packed = pack_update(master, grad, states, copy, words);
  if (packed.update.count == 0) return;
  const c10::cuda::CUDAGuard guard(master.device());
  launch_update(packed.formula, packed.state_format, packed.update,
                c10::cuda::getCurrentCUDAStream(master.device().index()).stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

TORCH_LIBRARY_IMPL(zeroth, CUDA, library) {
  library.impl("update_", update_cuda);
}

}  // namespace zeroth::optim::kernel
