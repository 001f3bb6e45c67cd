#include "optim/squared_norm.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace zeroth::optim {
namespace {

using torch::Tensor;
using SquaredNorm = Tensor(at::TensorList tensors);

c10::OperatorHandle norm_operator() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("zeroth::squared_norm", "");
}

// In fp64 over rows: the fp32 norm of a long tensor adds its squares in a few lanes and is off by
// percents at 10^8 elements.
Tensor sum_of_rows(const Tensor& tensor) {
  constexpr int64_t kRow = 4096;
  const int64_t in_rows = tensor.numel() / kRow * kRow;
  const Tensor rows = tensor.narrow(0, 0, in_rows).view({-1, kRow});
  const Tensor rest = tensor.narrow(0, in_rows, tensor.numel() - in_rows);
  const auto norm = [](const Tensor& x, at::OptionalIntArrayRef dims) {
    return at::linalg_vector_norm(x, 2, dims, /*keepdim=*/false, torch::kFloat).to(torch::kDouble);
  };
  return norm(rows, at::IntArrayRef({1})).square().sum() + norm(rest, std::nullopt).square();
}

// On the CPU LibTorch's norm of 16-bit numbers takes ten times as long as widening them while a
// cache holds them.
Tensor sum_of_squares(const Tensor& tensor) {
  constexpr int64_t kChunk = int64_t{1} << 18;
  if (!tensor.is_cpu() || tensor.scalar_type() == torch::kFloat) return sum_of_rows(tensor);
  Tensor sum = torch::zeros({}, torch::kDouble);
  for (const Tensor& chunk : tensor.split(kChunk)) {
    sum += sum_of_rows(chunk.to(torch::kFloat));
  }
  return sum;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(zeroth, library) {
  library.def("squared_norm(Tensor[] tensors) -> Tensor");
}

Tensor squared_norm(const std::vector<Tensor>& tensors, torch::Device device) {
  static const auto op = norm_operator();
  if (!tensors.empty() && tensors[0].is_cuda() &&
      op.hasKernelForDispatchKey(c10::DispatchKey::CUDA)) {
    return op.typed<SquaredNorm>().call(tensors);
  }
  Tensor sum = torch::zeros({}, torch::TensorOptions(device).dtype(torch::kDouble));
  for (const Tensor& tensor : tensors) sum += sum_of_squares(tensor);
  return sum;
}

}  // namespace zeroth::optim
