// What the simulated GPU needs operators of its own for: memory, views, copies from and to the
// host.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>

#include "tests/simulated_gpu/call_observer.h"
#include "tests/simulated_gpu/device_memory.h"
#include "tests/simulated_gpu/pinned_pages.h"
#include "tests/simulated_gpu/queued.h"
#include "tests/simulated_gpu/timeline.h"

namespace zeroth::simulated {
namespace {

using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, c10::GetAllocator(c10::kCUDA), kKeys,
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(c10::kCUDA), kKeys,
                                           c10::dtype_or_default(dtype));
}

// Contiguous tensors of one dtype, one of the host. Beside the host if its memory is locked;
// returns whether it has ended.
bool copy_over_link(const Tensor& to, const Tensor& from) {
  void* host = to.is_cpu() ? to.data_ptr() : from.data_ptr();
  if (PinnedPages::get().contains(host)) {
    PinnedPages::get().copy_queued(host, to.nbytes());
    notify_observer(to.is_cpu() ? "copy_to_host" : "copy_to_device",
                    {static_cast<int64_t>(to.nbytes())});
    // The copy keeps no memory of the host, either.
    void* device = DeviceMemory::get().for_work(to.is_cpu() ? from.data_ptr() : to.data_ptr());
    queue([=, to_host = to.is_cpu(), bytes = to.nbytes()] {
      std::memcpy(to_host ? host : device, to_host ? device : host, bytes);
      PinnedPages::get().copy_ended(host);
    });
  } else if (to.is_cuda()) {
    Timeline::get().handed_over();
    queue([to = on_cpu(to), from = from.clone()] { to.copy_(from); });
  } else {
    finish_current_stream();
    to.copy_(on_cpu(from));
    return true;
  }
  return false;
}

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::DeviceGuard guard(self.is_cuda() ? self.device() : source.device());
  if (self.numel() == 0) return self;
  if (self.is_cuda() && source.is_cuda()) {
    notify_observer("aten::copy_", {self, source});
    queue([to = on_cpu(self), from = on_cpu(source)] { to.copy_(from); });
    return self;
  }
  // As LibTorch on a GPU: converted and made whole where it lies.
  const Tensor to =
      self.is_contiguous() ? self : at::empty_like(self, c10::MemoryFormat::Contiguous);
  const bool ended = copy_over_link(to, source.to(self.scalar_type()).expand_as(self).contiguous());
  if (!to.is_same(self)) self.copy_(to);
  if (!non_blocking && !ended) finish_current_stream();
  return self;
}

at::Scalar local_scalar_dense(const Tensor& self) {
  finish_current_stream();
  return on_cpu(self).item();
}

void record_stream(Tensor& self, at::Stream stream) {
  c10::impl::VirtualGuardImpl(c10::kCUDA).recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

// Products of 16-bit matrices in fp32, which LibTorch has for GPUs alone.
Tensor& mm_dtype_out(const Tensor& a, const Tensor& b, at::ScalarType, Tensor& out) {
  queue([a = on_cpu(a), b = on_cpu(b), out = on_cpu(out)]() mutable {
    at::mm_out(out, a.to(at::kFloat), b.to(at::kFloat));
  });
  return out;
}

Tensor& addmm_dtype_out(const Tensor& add, const Tensor& a, const Tensor& b, at::ScalarType,
                        const at::Scalar& beta, const at::Scalar& alpha, Tensor& out) {
  queue(
      [add = on_cpu(add), a = on_cpu(a), b = on_cpu(b), beta, alpha, out = on_cpu(out)]() mutable {
        at::addmm_out(out, add, a.to(at::kFloat), b.to(at::kFloat), beta, alpha);
      });
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", static_cast<Tensor (*)(const Tensor&, at::IntArrayRef)>(at::native::view));
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("set_", at::native::set_cpu_);
  library.impl("set_.source_Tensor", at::native::set_tensor_);
  library.impl("set_.source_Storage", at::native::set_);
  library.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  library.impl("copy_", copy_);
  library.impl("_local_scalar_dense", local_scalar_dense);
  library.impl("record_stream", record_stream);
  library.impl("mm.dtype_out", mm_dtype_out);
  library.impl("addmm.dtype_out", addmm_dtype_out);
}

}  // namespace zeroth::simulated
