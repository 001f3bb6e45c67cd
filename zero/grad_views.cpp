#include "zero/grad_views.h"

#include "model/blocks/main_grad.h"

namespace zeroth::zero {
namespace {

torch::Tensor slot_view(const torch::Tensor& flat, const Slot& slot) {
  return at::as_strided(flat, slot.shape, c10::contiguous_strides(slot.shape), slot.offset);
}

// Zeroes the gaps between the parameters.
void zero_padding(const FlatLayout& layout, const torch::Tensor& flat) {
  const std::vector<Slot>& slots = layout.slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    const int64_t begin = slots[i].offset + slots[i].numel;
    const int64_t end = i + 1 < slots.size() ? slots[i + 1].offset : layout.numel();
    if (begin < end) flat.narrow(0, begin, end - begin).zero_();
  }
}

}  // namespace

void open_grad_views(const Unit& unit, const torch::Tensor& flat, bool holds_sum) {
  const torch::NoGradGuard no_grad;
  const bool fresh = !holds_sum && unit.begins_gradients;
  if (fresh) zero_padding(unit.layout, flat);
  if (!fresh && !holds_sum) flat.zero_();
  for (size_t i = 0; i < unit.params.size(); ++i) {
    unit.params[i].mutable_grad() =
        model::make_main_grad(slot_view(flat, unit.layout.slots()[i]), fresh);
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

}  // namespace zeroth::zero
