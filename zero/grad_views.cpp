#include "zero/grad_views.h"

#include "zero/grad_reducer.h"

namespace zeroth::zero {

void open_grad_views(const Unit& unit, const torch::Tensor& flat) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < unit.params.size(); ++i) {
    const Slot& slot = unit.layout.slots()[i];
    unit.params[i].mutable_grad() =
        at::as_strided(flat, slot.shape, c10::contiguous_strides(slot.shape), slot.offset);
  }
}

void close_grad_views(const Unit& unit) {
  for (const torch::Tensor& param : unit.params) param.mutable_grad() = torch::Tensor();
}

namespace {

// In fp64 over rows: the fp32 norm of a long tensor adds its squares in a few lanes and is off by
// percents at 10^8 elements.
torch::Tensor sum_of_squares(const torch::Tensor& tensor) {
  constexpr int64_t kRow = 4096;
  const int64_t in_rows = tensor.numel() / kRow * kRow;
  const torch::Tensor rows = tensor.narrow(0, 0, in_rows).view({-1, kRow});
  const torch::Tensor rest = tensor.narrow(0, in_rows, tensor.numel() - in_rows);
  return at::linalg_vector_norm(rows, 2, at::IntArrayRef({1})).to(torch::kDouble).square().sum() +
         at::linalg_vector_norm(rest).to(torch::kDouble).square();
}

}  // namespace

torch::Tensor squared_norm(const std::vector<torch::Tensor>& tensors, torch::Device device) {
  torch::Tensor sum = torch::zeros({}, torch::TensorOptions(device).dtype(torch::kDouble));
  for (const torch::Tensor& tensor : tensors) {
    sum += sum_of_squares(tensor);
  }
  return sum;
}

}  // namespace zeroth::zero
