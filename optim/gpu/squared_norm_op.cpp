// The CUDA kernels of the operator zeroth::squared_norms (optim/squared_norm.h). Loading the
// library registers them.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>
#include <torch/types.h>

#include <vector>

#include "base/error.h"
#include "optim/gpu/squared_norm.h"
#include "optim/tensor_format.h"

namespace zeroth::optim::kernel {
namespace {

using torch::Tensor;

// Arrays of one format that one launch takes.
struct Group {
  torch::ScalarType dtype;
  NormArrays arrays = {};
  int64_t pieces() const { return arrays.first_piece[arrays.arrays]; }
};

std::vector<Group> groups_of(at::TensorList tensors) {
  std::vector<Group> groups;
  for (const Tensor& tensor : tensors) {
    ZEROTH_CHECK(tensor.is_contiguous() && tensor.device() == tensors[0].device(),
                 "the norm of tensors on {} and {}", tensors[0].device().str(),
                 tensor.device().str());
    const bool fits = !groups.empty() && groups.back().dtype == tensor.scalar_type() &&
                      groups.back().arrays.arrays < kNormArrays;
    if (!fits) groups.push_back({tensor.scalar_type()});
    NormArrays& arrays = groups.back().arrays;
    arrays.at[arrays.arrays] = tensor.const_data_ptr();
    arrays.count[arrays.arrays] = tensor.numel();
    const int64_t pieces = (tensor.numel() + kNormPiece - 1) / kNormPiece;
    arrays.first_piece[arrays.arrays + 1] = arrays.first_piece[arrays.arrays] + pieces;
    ++arrays.arrays;
  }
  return groups;
}

Tensor squared_norms_cuda(at::TensorList tensors) {
  const c10::cuda::CUDAGuard guard(tensors[0].device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(tensors[0].device().index()).stream();
  const std::vector<Group> groups = groups_of(tensors);
  int64_t pieces = 0;
  for (const Group& group : groups) pieces += group.pieces();
  const auto options = tensors[0].options().dtype(torch::kFloat64);
  const Tensor parts = at::empty({pieces}, options);
  Tensor sums = at::empty({static_cast<int64_t>(tensors.size())}, options);
  auto* part = parts.data_ptr<double>();
  auto* sum = sums.data_ptr<double>();
  for (const Group& group : groups) {
    square_pieces(format_of(group.dtype), group.arrays, part, stream);
    sum_parts(group.arrays, part, sum, stream);
    part += group.pieces();
    sum += group.arrays.arrays;
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sums;
}

}  // namespace

TORCH_LIBRARY_IMPL(zeroth, CUDA, library) {
  library.impl("squared_norms", squared_norms_cuda);
}

}  // namespace zeroth::optim::kernel
