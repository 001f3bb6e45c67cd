#include "zero/unit_buffers.h"

#include <algorithm>
#include <utility>

#include "zero/unit.h"

namespace zeroth::zero {
namespace {

// Returns a 1-D tensor whose storage gets its memory later.
torch::Tensor without_memory(int64_t numel, torch::Dtype dtype, torch::Device device) {
  const size_t bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  const torch::Tensor tensor = torch::empty({0}, torch::TensorOptions(device).dtype(dtype));
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(nullptr, tensor.device()), c10::GetAllocator(device.type()),
                       /*resizable=*/true);
  return tensor.set_(storage, 0, {numel}, {1});
}

c10::DataPtr swap_memory(const torch::Tensor& tensor, c10::DataPtr memory) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  c10::DataPtr old = std::move(storage->mutable_data_ptr());
  storage->set_data_ptr_noswap(std::move(memory));
  return old;
}

}  // namespace

torch::Tensor slot_view(const torch::Tensor& flat, const Slot& slot) {
  return at::as_strided(flat, slot.shape(), c10::contiguous_strides(slot.shape()), slot.offset);
}

UnitBuffers::UnitBuffers(const UnitPlan& plan, torch::Dtype working, torch::Device device)
    : pool_(device), buffers_(plan.units.size()) {
  const torch::NoGradGuard no_grad;
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    const int64_t numel = plan.units[unit].full_range().size();
    const torch::Dtype dtype = plan.units[unit].dtype(working);
    buffers_[unit].whole = plan.units[unit].is_gathered_before_use()
                               ? without_memory(numel, dtype, device)
                               : torch::zeros({numel}, torch::TensorOptions(device).dtype(dtype));
    if (!plan.units[unit].is_held) {
      for (const torch::Tensor& param : plan.units[unit].params) {
        const torch::Tensor none = at::empty(param.sizes(), param.options().device(torch::kMeta));
        param.unsafeGetTensorImpl()->shallow_copy_from(none.getIntrusivePtr());
      }
      continue;
    }
    // The blocks keep their tensor objects; only their storage changes. shallow_copy_from also
    // gives the parameter a version counter of its own, so that a gather into the buffer does not
    // invalidate a kept graph.
    for (size_t i = 0; i < plan.units[unit].params.size(); ++i) {
      const torch::Tensor view = slot_view(whole(unit), plan.units[unit].layout.slots()[i]);
      plan.units[unit].params[i].unsafeGetTensorImpl()->shallow_copy_from(view.getIntrusivePtr());
    }
  }
}

void UnitBuffers::allocate(size_t unit) {
  set_memory(unit, pool_.acquire(whole(unit).nbytes()));
  buffers_[unit].aliased = false;
}

void UnitBuffers::alias_memory(size_t unit, void* memory) {
  set_memory(unit, c10::DataPtr(memory, whole(unit).device()));
  buffers_[unit].aliased = true;
}

void UnitBuffers::set_memory(size_t unit, c10::DataPtr memory) {
  swap_memory(whole(unit), std::move(memory));
  live_elements_ += whole(unit).numel();
  peak_live_elements_ = std::max(peak_live_elements_, live_elements_);
}

void UnitBuffers::release(size_t unit) {
  c10::DataPtr memory = swap_memory(whole(unit), c10::DataPtr(nullptr, whole(unit).device()));
  if (!buffers_[unit].aliased) pool_.release(whole(unit).nbytes(), std::move(memory));
  live_elements_ -= whole(unit).numel();
}

}  // namespace zeroth::zero
