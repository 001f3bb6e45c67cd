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
static_assert(kBlock % kernel::kCodeBlock == 0);
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
  const kernel::OptimizerTraits& traits = kernel::optimizer_traits(config);
  for (size_t i = 0; i < traits.num_states; ++i) {
    ZEROTH_CHECK(chunk.count == 0 || chunk.states[i], "a chunk without its state {}", i);
    ZEROTH_CHECK(chunk.count == 0 || !traits.is_coded() || chunk.maxima[i],
                 "a chunk without the maxima of its state {}", i);
  }
  ZEROTH_CHECK(!chunk.copy || chunk.copy_format != kernel::kFp32,
               "a copy of the master in its own precision");
  if (!config.bf16_masters) return;
  ZEROTH_CHECK(!chunk.copy, "a copy of a master that is bf16 itself");
  ZEROTH_CHECK(chunk.grad_format != kernel::kFp16, "an fp16 gradient of bf16 masters");
  ZEROTH_CHECK(chunk.first_element >= 0, "a chunk from element {}", chunk.first_element);
}

template <typename Pointer>
Pointer moved(Pointer pointer, int64_t elements, size_t width) {
  const auto bytes = static_cast<uintptr_t>(elements) * width;
  return pointer ? reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(pointer) + bytes)
                 : nullptr;
}

size_t float_bytes(bool wide) {
  return wide ? sizeof(float) : sizeof(uint16_t);
}

// Returns the arrays from element `begin` on.
kernel::UpdateArrays arrays_from(const OptimizerConfig& config, const CpuChunk& chunk,
                                 int64_t begin) {
  const bool coded = kernel::optimizer_traits(config).is_coded();
  kernel::UpdateArrays arrays = {
      .master = moved(chunk.master, begin, float_bytes(!config.bf16_masters)),
      .tables = coded ? &kernel::code_tables() : nullptr,
      .grad = moved(chunk.grad, begin, float_bytes(chunk.grad_format == kernel::kFp32)),
      .copy = moved(chunk.copy, begin, float_bytes(/*wide=*/false))};
  const size_t state_width = coded ? sizeof(uint8_t) : float_bytes(!config.bf16_states);
  for (size_t k = 0; k < chunk.states.size(); ++k) {
    arrays.states[k] = moved(chunk.states[k], begin, state_width);
    if (coded) arrays.maxima[k] = chunk.maxima[k] + begin / kernel::kCodeBlock;
  }
  const bool aligned = reinterpret_cast<uintptr_t>(arrays.copy) % 64 == 0;
  arrays.non_temporal = chunk.copy && aligned && chunk.count >= kMinNonTemporalCount;
  return arrays;
}

const kernel::UpdateKernels& update_kernels(const kernel::CpuKernels& kernels,
                                            const OptimizerConfig& config) {
  const kernel::Formula formula = kernel::select_formula(config);
  return formula == kernel::kCodedAdam ? kernels.update_coded : kernels.update[formula];
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
    : config_(config), kernels_(update_kernels(select_kernels(level), config)) {
  ZEROTH_CHECK(config.bf16_masters || !config.bf16_states, "bf16 states of an fp32 master");
  ZEROTH_CHECK(!config.bf16_masters || !kernel::optimizer_traits(config).is_coded(),
               "bf16 masters with coded states");
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
