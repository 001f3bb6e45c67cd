// What the simulated GPU needs operators of its own for: memory, views, copies from and to the
// host.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "tests/simulated_gpu/locked_pages.h"
#include "tests/simulated_gpu/queued.h"
#include "tests/simulated_gpu/timeline.h"

namespace zeroth::simulated {
namespace {

using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, c10::GetAllocator(c10::kCUDA), kKeys,
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(c10::kCUDA), kKeys,
                                           c10::dtype_or_default(dtype));
}

// Beside the host only from and to locked memory that needs no conversion, as LibTorch on a GPU.
bool runs_beside_the_host(const Tensor& to, const Tensor& from) {
  const Tensor& host = to.is_cpu() ? to : from;
  return to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes() &&
         to.is_contiguous() && from.is_contiguous() && LockedPages::get().contains(host.data_ptr());
}

void queue_copy(const Tensor& to, const Tensor& from) {
  const void* host = to.is_cpu() ? to.data_ptr() : from.data_ptr();
  LockedPages::get().copy_queued(host);
  // An alias of host memory does not keep it, either.
  const auto alias = [](const Tensor& x) {
    return at::from_blob(x.data_ptr(), x.sizes(), at::TensorOptions(x.scalar_type()));
  };
  queue([to = alias(to), from = alias(from), host] {
    to.copy_(from);
    LockedPages::get().copy_ended(host);
  });
}

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  const at::AutoDispatchBelowADInplaceOrView below;
  if (self.numel() == 0) return self;
  if (self.is_cuda() && source.is_cuda()) {
    queue([to = on_cpu(self), from = on_cpu(source)] { to.copy_(from); });
    return self;
  }
  const Tensor from = source.expand_as(self);
  if (runs_beside_the_host(self, from)) {
    queue_copy(self, from);
  } else if (self.is_cuda()) {
    queue([to = on_cpu(self), from = from.clone()] { to.copy_(from); });
  } else {
    finish_current_stream();
    self.copy_(on_cpu(from));
  }
  if (!non_blocking) finish_current_stream();
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
