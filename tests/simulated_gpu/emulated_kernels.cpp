// With ZEROTH_SIMULATED_KERNELS=emulated, queued work runs the operators of the GPU library, whose
// kernels tests/emulated_gpu runs on the CPU. Work gets its tensors as those of the CPU, so that is
// what the operators are registered for, in place of the CPU's own; those of the device queue them
// instead of their formula.
#include "tests/simulated_gpu/emulated_kernels.h"

#include <torch/library.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>

// The sources below register nothing by themselves: each becomes a function that does.
#undef TORCH_LIBRARY_IMPL
#define TORCH_LIBRARY_IMPL(space, key, library) \
  void ZEROTH_REGISTER([[maybe_unused]] torch::Library& library)
#define ZEROTH_REGISTER register_fused
#include "model/kernels/gpu/fused_ops.cpp"
#undef ZEROTH_REGISTER
#define ZEROTH_REGISTER register_update
#include "optim/gpu/update_ops.cpp"

#include "tests/simulated_gpu/queued.h"

namespace zeroth::simulated {
namespace {

// The kernel leaves what is not wanted in another shape than the formula does.
std::tuple<at::Tensor, at::Tensor> backward_shapes(const at::Tensor&, at::TensorList saved,
                                                   const std::optional<at::Tensor>&,
                                                   std::array<bool, 2> wanted, double) {
  const at::Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
  const int64_t width = weight.size(0);
  return {at::empty_like(x, at::MemoryFormat::Contiguous),
          wanted[1] ? at::empty({width}, scale.options()) : at::empty({0, width}, scale.options())};
}

}  // namespace

void use_emulated_kernels() {
  const char* const kernels = std::getenv("ZEROTH_SIMULATED_KERNELS");
  if (kernels == nullptr || kernels != std::string("emulated")) return;
  static std::optional<torch::Library> library, device, meta;
  if (library) return;
  device.emplace(torch::Library::IMPL, "zeroth", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  for (const char* const name : {"rms_norm", "add_rms_norm", "rms_norm_backward", "apply_rope",
                                 "gated_activation", "gated_activation_backward", "add_rows_",
                                 "log_sum_exp", "logit_gradient_", "dequantize_nf4"}) {
    device->impl(name, torch::CppFunction::makeFromBoxedFunction<&run_queued>());
  }
  meta.emplace(torch::Library::IMPL, "zeroth", c10::DispatchKey::Meta, __FILE__, __LINE__);
  meta->impl("rms_norm_backward", backward_shapes);
  library.emplace(torch::Library::IMPL, "zeroth", c10::DispatchKey::CPU, __FILE__, __LINE__);
  model::gpu::register_fused(*library);
  optim::kernel::register_update(*library);
}

}  // namespace zeroth::simulated

// For tests that count them.
extern "C" __attribute__((visibility("default"))) int64_t zeroth_simulated_kernel_launches() {
  return zeroth::emulated::launches();
}
