#include "tests/simulated_gpu/queued.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "tests/simulated_gpu/device_memory.h"
#include "tests/simulated_gpu/devices.h"

namespace zeroth::simulated {

StreamNumber number_of(const c10::Stream& stream) {
  return stream_number(stream.device_index(), stream.id());
}

StreamNumber current_stream() {
  return number_of(c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(current_device()));
}

void queue(std::function<void()> work) {
  Timeline::get().queue(current_stream(), [work = std::move(work)] {
    const at::AutoDispatchBelowADInplaceOrView below;
    work();
  });
}

void finish_current_stream() {
  Timeline::get().finish(current_stream());
}

at::Tensor as_number_of(const at::Tensor& x, at::Tensor other) {
  if (x.unsafeGetTensorImpl()->is_wrapped_number()) {
    other.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return other;
}

at::Tensor on_cpu(const at::Tensor& x) {
  if (!x.defined() || !x.is_cuda()) return x;
  TORCH_CHECK(x.device() == current_device(), "work for ", current_device(),
              " is given a tensor of ", x.device());
  at::Tensor alias = at::from_blob(DeviceMemory::get().for_work(x.data_ptr()), x.sizes(),
                                   x.strides(), at::TensorOptions(at::kCPU).dtype(x.scalar_type()));
  return as_number_of(x, std::move(alias));
}

}  // namespace zeroth::simulated
