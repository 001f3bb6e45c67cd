// The CUDA kernels of the operators zeroth::update_ (optim/kernel_rules.h) and
// zeroth::squared_norms (optim/squared_norm.h). Loading the library registers them.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "device/tensor.h"
#include "optim/gpu/kernels.h"
#include "optim/gpu/pack_update.h"
#include "optim/tensor_format.h"

namespace zeroth::optim::kernel {
namespace {

using torch::Tensor;

void update_cuda(const Tensor& master, const Tensor& grad, at::TensorList states,
                 const std::optional<Tensor>& copy, at::IntArrayRef words,
                 const std::optional<Tensor>& tables) {
  const DeviceUpdate update = pack_update(master, grad, states, copy, words, tables);
  if (update.count == 0) return;
  const c10::cuda::CUDAGuard guard(master.device());
  launch_update(update, c10::cuda::getCurrentCUDAStream(master.device().index()).stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// A NormLaunch holds arrays of one format that one launch processes.
struct NormLaunch {
  torch::ScalarType dtype;
  NormArrays arrays = {};
  int64_t chunks() const { return arrays.first_chunk[arrays.arrays]; }
};

std::vector<NormLaunch> make_launches(at::TensorList tensors) {
  std::vector<NormLaunch> launches;
  for (const Tensor& tensor : tensors) {
    ZEROTH_CHECK(tensor.is_contiguous() && tensor.device() == tensors[0].device(),
                 "the norm of tensors on {} and {}", tensors[0].device().str(),
                 tensor.device().str());
    const bool fits = !launches.empty() && launches.back().dtype == tensor.scalar_type() &&
                      launches.back().arrays.arrays < kMaxNormArrays;
    if (!fits) launches.push_back({tensor.scalar_type()});
    NormArrays& arrays = launches.back().arrays;
    arrays.at[arrays.arrays] = tensor.const_data_ptr();
    arrays.count[arrays.arrays] = tensor.numel();
    const int64_t chunks = (tensor.numel() + kNormChunk - 1) / kNormChunk;
    arrays.first_chunk[arrays.arrays + 1] = arrays.first_chunk[arrays.arrays] + chunks;
    ++arrays.arrays;
  }
  return launches;
}

Tensor squared_norms_cuda(at::TensorList tensors) {
  const c10::cuda::CUDAGuard guard(tensors[0].device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(tensors[0].device().index()).stream();
  const std::vector<NormLaunch> launches = make_launches(tensors);
  int64_t chunks = 0;
  for (const NormLaunch& launch : launches) chunks += launch.chunks();
  const auto options = tensors[0].options().dtype(torch::kDouble);
  const Tensor parts = at::empty({chunks}, options);
  Tensor sums = at::empty({static_cast<int64_t>(tensors.size())}, options);
  auto* part = parts.data_ptr<double>();
  auto* sum = sums.data_ptr<double>();
  for (const NormLaunch& launch : launches) {
    square_chunks(to_format(launch.dtype), launch.arrays, part, stream);
    sum_parts(launch.arrays, part, sum, stream);
    part += launch.chunks();
    sum += launch.arrays.arrays;
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sums;
}

}  // namespace

TORCH_LIBRARY_IMPL(zeroth, CUDA, library) {
  library.impl("update_", update_cuda);
  library.impl("squared_norms", squared_norms_cuda);
}

}  // namespace zeroth::optim::kernel
