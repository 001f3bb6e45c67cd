// With ZEROTH_SIMULATED_KERNELS=emulated, queued work runs the operators of the GPU library, whose
// kernels tests/emulated_gpu runs on the CPU. Work gets its tensors as those of the CPU, so that is
// what the operators are registered for, in place of the CPU's own.
#include "tests/simulated_gpu/emulated_kernels.h"

#include <torch/library.h>

#include <cstdlib>
#include <optional>
#include <string>

// The sources below register nothing by themselves: each becomes a function that does.
#undef TORCH_LIBRARY_IMPL
#define TORCH_LIBRARY_IMPL(space, key, library) \
  void ZEROTH_REGISTER([[maybe_unused]] torch::Library& library)
#define ZEROTH_REGISTER register_fused
#include "model/kernels/gpu/fused_ops.cpp"
#undef ZEROTH_REGISTER
#define ZEROTH_REGISTER register_norm
#include "optim/gpu/squared_norm_op.cpp"
#undef ZEROTH_REGISTER
#define ZEROTH_REGISTER register_update
#include "optim/gpu/update_op.cpp"

namespace zeroth::simulated {

void use_emulated_kernels() {
  const char* const kernels = std::getenv("ZEROTH_SIMULATED_KERNELS");
  if (kernels == nullptr || kernels != std::string("emulated")) return;
  static std::optional<torch::Library> library;
  if (library) return;
  library.emplace(torch::Library::IMPL, "zeroth", c10::DispatchKey::CPU, __FILE__, __LINE__);
  model::gpu::register_fused(*library);
  optim::kernel::register_norm(*library);
  optim::kernel::register_update(*library);
}

}  // namespace zeroth::simulated

// For tests that count them.
extern "C" __attribute__((visibility("default"))) int64_t zeroth_simulated_kernel_launches() {
  return zeroth::emulated::launches();
}
