#include "zero/grad_views.h"

#include "model/open_gradient.h"

namespace zeroth::zero {
namespace {

torch::Tensor slot_view(const torch::Tensor& flat, const Slot& slot) {
  return at::as_strided(flat, slot.shape, c10::contiguous_strides(slot.shape), slot.offset);
}

// What lies between the parameters.
void zero_padding(const FlatLayout& layout, const torch::Tensor& flat) {
  const std::vector<Slot>& slots = layout.slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    const int64_t begin = slots[i].offset + slots[i].numel;
    const int64_t end = i + 1 < slots.size() ? slots[i + 1].offset : layout.numel();
    if (begin < end) flat.narrow(0, begin, end - begin).zero_();
  }
}

// In fp64 over rows: the fp32 norm of a long tensor adds its squares in a few lanes and is off by
// percents at 10^8 elements.
torch::Tensor sum_of_rows(const torch::Tensor& tensor) {
  constexpr int64_t kRow = 4096;
  const int64_t in_rows = tensor.numel() / kRow * kRow;
  const torch::Tensor rows = tensor.narrow(0, 0, in_rows).view({-1, kRow});
  const torch::Tensor rest = tensor.narrow(0, in_rows, tensor.numel() - in_rows);
  const auto norm = [](const torch::Tensor& x, at::OptionalIntArrayRef dims) {
    return at::linalg_vector_norm(x, 2, dims, /*keepdim=*/false, torch::kFloat).to(torch::kDouble);
  };
  return norm(rows, at::IntArrayRef({1})).square().sum() + norm(rest, std::nullopt).square();
}

// On the CPU LibTorch's norm of 16-bit numbers takes ten times as long as widening them while a
// cache holds them.
torch::Tensor sum_of_squares(const torch::Tensor& tensor) {
  constexpr int64_t kChunk = int64_t{1} << 18;
  if (!tensor.is_cpu() || tensor.scalar_type() == torch::kFloat) return sum_of_rows(tensor);
  torch::Tensor sum = torch::zeros({}, torch::kDouble);
  for (const torch::Tensor& chunk : tensor.split(kChunk)) {
    sum += sum_of_rows(chunk.to(torch::kFloat));
  }
  return sum;
}

}  // namespace

void open_grad_views(const Unit& unit, const torch::Tensor& flat, bool holds_sum) {
  const torch::NoGradGuard no_grad;
  const bool fresh = !holds_sum && unit.begins_gradients;
  if (fresh) zero_padding(unit.layout, flat);
  if (!fresh && !holds_sum) flat.zero_();
  for (size_t i = 0; i < unit.params.size(); ++i) {
    unit.params[i].mutable_grad() =
        model::make_open_gradient(slot_view(flat, unit.layout.slots()[i]), fresh);
  }
}

void close_grad_views(const Unit& unit, const torch::Tensor& flat, bool holds_sum,
                      std::vector<bool>& got) {
  const torch::NoGradGuard no_grad;
  const bool fresh = !holds_sum && unit.begins_gradients;
  got.resize(unit.params.size());
  for (size_t i = 0; i < unit.params.size(); ++i) {
    const bool written = model::was_written(unit.params[i].grad(), fresh);
    if (written) got[i] = true;
    if (fresh && !written) slot_view(flat, unit.layout.slots()[i]).zero_();
    unit.params[i].mutable_grad() = torch::Tensor();
  }
}

torch::Tensor squared_norm(const std::vector<torch::Tensor>& tensors, torch::Device device) {
  torch::Tensor sum = torch::zeros({}, torch::TensorOptions(device).dtype(torch::kDouble));
  for (const torch::Tensor& tensor : tensors) {
    sum += sum_of_squares(tensor);
  }
  return sum;
}

}  // namespace zeroth::zero
