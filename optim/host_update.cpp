#include "optim/host_update.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "optim/host_kernels.h"

namespace zeroth::optim {
namespace {

using configs::OptimizerConfig;
using Kind = OptimizerConfig::Kind;

// Threads begin at multiples of this, and each gets at least kGrain of them.
constexpr int64_t kBlock = 2048;
constexpr int64_t kGrain = 8;
// A smaller copy is left in the caches, where the next reader finds it.
constexpr int64_t kPastCaches = int64_t{1} << 20;

const kernel::Kernels& kernels_of(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512) return kernel::avx512::kKernels;
  if (level >= CpuLevel::kAvx2) return kernel::avx2::kKernels;
#endif
  ZEROTH_CHECK(level == CpuLevel::kPlain, "{} on this processor", name_of(level));
  return kernel::plain::kKernels;
}

kernel::Result result_of(const OptimizerConfig& config, const HostTile& tile) {
  if (config.bf16_masters) return config.bf16_states ? kernel::kAllBf16 : kernel::kBf16Master;
  if (!tile.copy) return kernel::kNoCopy;
  return tile.copy_type == configs::Precision::kBf16 ? kernel::kBf16Copy : kernel::kFp16Copy;
}

kernel::Format format_of(configs::Precision precision) {
  switch (precision) {
    case configs::Precision::kFp32:
      return kernel::kFp32;
    case configs::Precision::kBf16:
      return kernel::kBf16;
    case configs::Precision::kFp16:
      return kernel::kFp16;
  }
  throw InternalError(fmt::format("precision {}", static_cast<int>(precision)));
}

void check(const OptimizerConfig& config, const HostTile& tile, const UpdateStep& step) {
  ZEROTH_CHECK(step.update >= 1, "update {}, not counted from 1", step.update);
  ZEROTH_CHECK(std::isfinite(step.grad_factor) && step.grad_factor > 0, "gradient factor {}",
               step.grad_factor);
  ZEROTH_CHECK(tile.count >= 0, "a tile of {} elements", tile.count);
  ZEROTH_CHECK(tile.count == 0 || (tile.master && tile.grad), "a tile without its arrays");
  for (size_t i = 0; i < kernel::states_of(kernel::formula_of(config)); ++i) {
    ZEROTH_CHECK(tile.count == 0 || tile.states[i], "a tile without its state {}", i);
  }
  ZEROTH_CHECK(!tile.copy || tile.copy_type != configs::Precision::kFp32,
               "a copy of the master in its own precision");
  if (!config.bf16_masters) return;
  ZEROTH_CHECK(!tile.copy, "a copy of a master that is bf16 itself");
  ZEROTH_CHECK(tile.grad_type != configs::Precision::kFp16, "an fp16 gradient of bf16 masters");
  ZEROTH_CHECK(tile.first_element >= 0, "a tile from element {}", tile.first_element);
}

template <typename Pointer>
Pointer moved(Pointer pointer, int64_t elements, bool wide) {
  const auto bytes = static_cast<uintptr_t>(elements) * (wide ? sizeof(float) : sizeof(uint16_t));
  return pointer ? reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(pointer) + bytes)
                 : nullptr;
}

// The arrays from element `begin` on.
kernel::Arrays arrays_from(const OptimizerConfig& config, const HostTile& tile, int64_t begin) {
  const bool wide_states = !config.bf16_states;
  kernel::Arrays arrays = {
      .master = moved(tile.master, begin, !config.bf16_masters),
      .states = {moved(tile.states[0], begin, wide_states),
                 moved(tile.states[1], begin, wide_states)},
      .grad = moved(tile.grad, begin, tile.grad_type == configs::Precision::kFp32),
      .copy = moved(tile.copy, begin, /*wide=*/false)};
  const bool aligned = reinterpret_cast<uintptr_t>(arrays.copy) % 64 == 0;
  arrays.past_caches = tile.copy && aligned && tile.count >= kPastCaches;
  return arrays;
}

}  // namespace

HostUpdate::HostUpdate(const OptimizerConfig& config, CpuLevel level)
    : config_(config), level_(level) {
  ZEROTH_CHECK(level <= processor_level(), "{} on a processor that has {}", name_of(level),
               name_of(processor_level()));
  ZEROTH_CHECK(config.bf16_masters || !config.bf16_states, "bf16 states of an fp32 master");
}

void HostUpdate::apply(const HostTile& tile, const UpdateStep& step) const {
  check(config_, tile, step);
  const kernel::Constants constants = kernel::constants_of(config_, step);
  const auto& by_gradient = kernels_of(level_).of[kernel::formula_of(config_)];
  const kernel::Kernel run = by_gradient[format_of(tile.grad_type)][result_of(config_, tile)];
  const auto update = [&](int64_t begin, int64_t end) {
    kernel::Arrays arrays = arrays_from(config_, tile, begin);
    if (config_.bf16_masters) {
      const int64_t before = tile.first_element;
      const NumberedRun part = numbered_run(tile.numbers, before + begin, before + end);
      end = part.end - before;
      arrays.numbers = part.numbers;
      for (size_t i = 0; i < kernel::kArrays; ++i) {
        arrays.keys[i] = kernel::rounding_key(step, i, part.numbers.first);
      }
    }
    run(constants, arrays, end - begin);
    return end;
  };
  parallel_for((tile.count + kBlock - 1) / kBlock, kGrain, [&](int64_t first, int64_t last) {
    const int64_t end = std::min(last * kBlock, tile.count);
    for (int64_t begin = first * kBlock; begin < end;) begin = update(begin, end);
  });
}

}  // namespace zeroth::optim
