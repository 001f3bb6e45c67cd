#include "optim/cpu/cpu_update.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/machine/parallel.h"

namespace zeroth::optim {
namespace {

using configs::OptimizerConfig;

// Threads begin at multiples of kBlock, and each gets at least kGrain blocks.
constexpr int64_t kBlock = 2048;
constexpr int64_t kGrain = 8;
// A smaller copy is left in the caches, where the next reader finds it.
constexpr int64_t kMinNonTemporalCount = int64_t{1} << 20;

kernel::OutputFormat select_output(const OptimizerConfig& config, const CpuChunk& chunk) {
  if (config.bf16_masters) return config.bf16_states ? kernel::kAllBf16 : kernel::kBf16Master;
  if (!chunk.copy) return kernel::kNoCopy;
  return chunk.copy_format == kernel::kBf16 ? kernel::kBf16Copy : kernel::kFp16Copy;
}

void check(const OptimizerConfig& config, const CpuChunk& chunk, const UpdateStep& step) {
  ZEROTH_CHECK(step.update >= 1, "update {}, not counted from 1", step.update);
  ZEROTH_CHECK(std::isfinite(step.grad_factor) && step.grad_factor > 0, "gradient factor {}",
               step.grad_factor);
  ZEROTH_CHECK(chunk.count >= 0, "a chunk of {} elements", chunk.count);
  ZEROTH_CHECK(chunk.count == 0 || (chunk.master && chunk.grad), "a chunk without its arrays");
  for (size_t i = 0; i < kernel::optimizer_traits(config).num_states; ++i) {
    ZEROTH_CHECK(chunk.count == 0 || chunk.states[i], "a chunk without its state {}", i);
  }
  ZEROTH_CHECK(!chunk.copy || chunk.copy_format != kernel::kFp32,
               "a copy of the master in its own precision");
  if (!config.bf16_masters) return;
  ZEROTH_CHECK(!chunk.copy, "a copy of a master that is bf16 itself");
  ZEROTH_CHECK(chunk.grad_format != kernel::kFp16, "an fp16 gradient of bf16 masters");
  ZEROTH_CHECK(chunk.first_element >= 0, "a chunk from element {}", chunk.first_element);
}

template <typename Pointer>
Pointer moved(Pointer pointer, int64_t elements, bool wide) {
  const auto bytes = static_cast<uintptr_t>(elements) * (wide ? sizeof(float) : sizeof(uint16_t));
  return pointer ? reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(pointer) + bytes)
                 : nullptr;
}

// Returns the arrays from element `begin` on.
kernel::UpdateArrays arrays_from(const OptimizerConfig& config, const CpuChunk& chunk,
                                 int64_t begin) {
  const bool wide_states = !config.bf16_states;
  kernel::UpdateArrays arrays = {
      .master = moved(chunk.master, begin, !config.bf16_masters),
      .grad = moved(chunk.grad, begin, chunk.grad_format == kernel::kFp32),
      .copy = moved(chunk.copy, begin, /*wide=*/false)};
  for (size_t k = 0; k < chunk.states.size(); ++k) {
    arrays.states[k] = moved(chunk.states[k], begin, wide_states);
  }
  const bool aligned = reinterpret_cast<uintptr_t>(arrays.copy) % 64 == 0;
  arrays.non_temporal = chunk.copy && aligned && chunk.count >= kMinNonTemporalCount;
  return arrays;
}

}  // namespace

const kernel::CpuKernels& select_kernels(CpuIsa level) {
  ZEROTH_CHECK(level <= detected_cpu_isa(), "{} on a processor that has {}", to_string(level),
               to_string(detected_cpu_isa()));
#if defined(__x86_64__)
  if (level >= CpuIsa::kAvx512) return kernel::avx512::kKernels;
  if (level >= CpuIsa::kAvx2) return kernel::avx2::kKernels;
#endif
  return kernel::plain::kKernels;
}

CpuUpdate::CpuUpdate(const OptimizerConfig& config, CpuIsa level)
    : config_(config), kernels_(select_kernels(level).update[kernel::select_formula(config)]) {
  ZEROTH_CHECK(config.bf16_masters || !config.bf16_states, "bf16 states of an fp32 master");
}

void CpuUpdate::apply(const CpuChunk& chunk, const UpdateStep& step) const {
  check(config_, chunk, step);
  const kernel::Constants constants = kernel::make_constants(config_, step);
  const kernel::Kernel run = kernels_[chunk.grad_format][select_output(config_, chunk)];
  const auto update = [&](int64_t begin, int64_t end) {
    kernel::UpdateArrays arrays = arrays_from(config_, chunk, begin);
    if (config_.bf16_masters) {
      const int64_t before = chunk.first_element;
      const OffsetRun part = offset_run(chunk.offsets, before + begin, before + end);
      end = part.end - before;
      arrays.offsets = part.offsets;
      kernel::set_rounding_keys(step, part.offsets.first, arrays.keys);
    }
    run(constants, arrays, end - begin);
    return end;
  };
  parallel_for((chunk.count + kBlock - 1) / kBlock, kGrain, [&](int64_t first, int64_t last) {
    const int64_t end = std::min(last * kBlock, chunk.count);
    for (int64_t begin = first * kBlock; begin < end;) begin = update(begin, end);
  });
}

}  // namespace zeroth::optim
