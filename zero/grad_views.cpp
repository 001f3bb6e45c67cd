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

torch::Tensor squared_norm(const std::vector<torch::Tensor>& tensors, torch::Device device) {
  torch::Tensor sum = torch::zeros({}, torch::TensorOptions(device).dtype(torch::kDouble));
  for (const torch::Tensor& tensor : tensors) {
    sum += at::linalg_vector_norm(tensor).to(torch::kDouble).square();
  }
  return sum;
}

}  // namespace zeroth::zero
