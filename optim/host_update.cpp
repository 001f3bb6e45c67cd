#include "optim/host_update.h"

#include <algorithm>
#include <cmath>

#include "base/cpu.h"
#include "base/error.h"
#include "base/parallel.h"
#include "optim/host_kernels.h"

namespace zeroth::optim {
namespace {

using configs::OptimizerConfig;
using Kind = OptimizerConfig::Kind;
using Path = HostUpdate::Path;

// Threads begin at multiples of this, and each gets at least kGrain of them.
constexpr int64_t kBlock = 2048;
constexpr int64_t kGrain = 8;
// A smaller copy is left in the caches, where the next reader finds it.
constexpr int64_t kPastCaches = int64_t{1} << 20;

const host::Kernels& kernels_of(Path path) {
#if defined(__x86_64__)
  if (path == Path::kAvx512) return host::avx512::kKernels;
  if (path == Path::kAvx2) return host::avx2::kKernels;
#endif
  ZEROTH_CHECK(path == Path::kPlain, "path {} on this processor", static_cast<int>(path));
  return host::plain::kKernels;
}

host::Formula formula_of(const OptimizerConfig& config) {
  switch (config.kind) {
    case Kind::kAdamW:
    case Kind::kAdam:
      return host::kAdam;
    case Kind::kLion:
      return host::kLion;
    case Kind::kAdagrad:
      return host::kAdagrad;
    case Kind::kSgd:
      return config.momentum == 0 ? host::kSgd : host::kSgdMomentum;
  }
  throw InternalError(fmt::format("optimizer kind {}", static_cast<int>(config.kind)));
}

size_t states_of(host::Formula formula) {
  return formula == host::kAdam ? 2 : formula == host::kSgd ? 0 : 1;
}

host::Format format_of(configs::Precision precision) {
  switch (precision) {
    case configs::Precision::kFp32:
      return host::kFp32;
    case configs::Precision::kBf16:
      return host::kBf16;
    case configs::Precision::kFp16:
      return host::kFp16;
  }
  throw InternalError(fmt::format("precision {}", static_cast<int>(precision)));
}

float narrow(double x) {
  return static_cast<float>(x);
}

void set_adam(const OptimizerConfig& config, const UpdateStep& step, host::Constants& constants) {
  const double update = static_cast<double>(step.update);
  const auto [beta1, beta2] = step.betas;
  const float weight = narrow(1 - beta1);
  constants.from_gradient = weight >= 0.5F;
  constants.add_first = constants.from_gradient ? weight - 1 : weight;
  constants.keep_second = narrow(beta2);
  constants.add_second = narrow(1 - beta2);
  constants.root_divisor = narrow(std::sqrt(1 - std::pow(beta2, update)));
  constants.minus_rate = narrow(-(step.lr / (1 - std::pow(beta1, update))));
  constants.eps = narrow(config.eps);
}

void set_lion(const UpdateStep& step, host::Constants& constants) {
  const auto [beta1, beta2] = step.betas;
  constants.magnitude = narrow(step.lr);
  constants.keep_first = narrow(beta1);
  constants.add_first = narrow((1 - beta1) * step.grad_factor);
  constants.keep_second = narrow(beta2);
  constants.add_second = narrow((1 - beta2) * step.grad_factor);
}

void set_adagrad(const OptimizerConfig& config, const UpdateStep& step,
                 host::Constants& constants) {
  const double earlier = static_cast<double>(step.update) - 1;
  constants.minus_rate = narrow(-(step.lr / (1 + earlier * config.lr_decay)));
  constants.eps = narrow(config.eps);
}

void set_sgd(const OptimizerConfig& config, const UpdateStep& step, host::Constants& constants) {
  constants.minus_rate = narrow(-step.lr);
  constants.keep_first = narrow(config.momentum);
  constants.add_first = narrow(1 - config.dampening);
  constants.from_gradient = step.update == 1;
  constants.nesterov = config.nesterov;
}

host::Constants constants_of(const OptimizerConfig& config, const UpdateStep& step) {
  host::Constants constants;
  const float divisor = narrow(1 / step.grad_factor);
  std::isnormal(divisor) ? constants.divisor = divisor
                         : constants.factor = narrow(step.grad_factor);
  const bool decoupled = config.kind == Kind::kAdamW || config.kind == Kind::kLion;
  if (decoupled) {
    constants.keep = narrow(1 - step.lr * step.weight_decay);
  } else {
    constants.decay = narrow(step.weight_decay);
  }
  switch (config.kind) {
    case Kind::kAdamW:
    case Kind::kAdam:
      set_adam(config, step, constants);
      break;
    case Kind::kLion:
      set_lion(step, constants);
      break;
    case Kind::kAdagrad:
      set_adagrad(config, step, constants);
      break;
    case Kind::kSgd:
      set_sgd(config, step, constants);
      break;
  }
  return constants;
}

void check(const HostTile& tile, size_t states, const UpdateStep& step) {
  ZEROTH_CHECK(step.update >= 1, "update {}, not counted from 1", step.update);
  ZEROTH_CHECK(std::isfinite(step.grad_factor) && step.grad_factor > 0, "gradient factor {}",
               step.grad_factor);
  ZEROTH_CHECK(tile.count >= 0, "a tile of {} elements", tile.count);
  ZEROTH_CHECK(tile.count == 0 || (tile.master && tile.grad), "a tile without its arrays");
  for (size_t i = 0; i < states; ++i) {
    ZEROTH_CHECK(tile.count == 0 || tile.states[i], "a tile without its state {}", i);
  }
  ZEROTH_CHECK(!tile.copy || tile.copy_type != configs::Precision::kFp32,
               "a copy of the master in its own precision");
}

template <typename Pointer>
Pointer moved(Pointer pointer, int64_t bytes) {
  return pointer ? reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(pointer) +
                                             static_cast<uintptr_t>(bytes))
                 : nullptr;
}

// The arrays from element `begin` on.
host::Arrays arrays_from(const HostTile& tile, int64_t begin) {
  constexpr int64_t kSize = sizeof(float), kHalf = sizeof(uint16_t);
  const bool aligned = reinterpret_cast<uintptr_t>(tile.copy) % 64 == 0;
  const bool wide = tile.grad_type == configs::Precision::kFp32;
  return {.master = moved(tile.master, begin * kSize),
          .states = {moved(tile.states[0], begin * kSize), moved(tile.states[1], begin * kSize)},
          .grad = moved(tile.grad, begin * (wide ? kSize : kHalf)),
          .copy = moved(tile.copy, begin * kHalf),
          .past_caches = tile.copy && aligned && tile.count >= kPastCaches};
}

}  // namespace

Path HostUpdate::fastest() {
  if (cpu_has_avx512()) return Path::kAvx512;
  return cpu_has_avx2() ? Path::kAvx2 : Path::kPlain;
}

HostUpdate::HostUpdate(const OptimizerConfig& config, Path path) : config_(config), path_(path) {
  ZEROTH_CHECK(path <= fastest(), "path {} on a processor that has {}", static_cast<int>(path),
               static_cast<int>(fastest()));
}

void HostUpdate::apply(const HostTile& tile, const UpdateStep& step) const {
  const host::Formula formula = formula_of(config_);
  check(tile, states_of(formula), step);
  const host::Constants constants = constants_of(config_, step);
  const host::Format copy = tile.copy ? format_of(tile.copy_type) : host::kFp32;
  const host::Kernel kernel = kernels_of(path_).of[formula][format_of(tile.grad_type)][copy];
  parallel_for((tile.count + kBlock - 1) / kBlock, kGrain, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kBlock, end = std::min(last * kBlock, tile.count);
    kernel(constants, arrays_from(tile, begin), end - begin);
  });
}

}  // namespace zeroth::optim
