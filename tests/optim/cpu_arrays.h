// Arrays for a host update, filled with numbers of many sizes.
#pragma once

#include <ATen/Version.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "optim/cpu/cpu_update.h"

namespace zeroth::optim {

using configs::OptimizerConfig;
using kernel::Format;
using Kind = OptimizerConfig::Kind;

inline const std::vector<OptimizerConfig>& cpu_rules() {
  static const std::vector<OptimizerConfig> kRules = {
      {.kind = Kind::kAdamW},
      {.kind = Kind::kAdamW, .lr = 0.1, .betas = {0.25, 0.5}, .eps = 1e-4},
      {.kind = Kind::kAdam, .betas = {0.8, 0.99}},
      {.kind = Kind::kLion, .betas = {0.9, 0.99}},
      {.kind = Kind::kAdagrad, .lr = 1e-2, .eps = 1e-10, .lr_decay = 0.1},
      {.kind = Kind::kSgd, .lr = 0.1},
      {.kind = Kind::kSgd, .lr = 0.1, .momentum = 0.9},
      {.kind = Kind::kSgd, .lr = 0.1, .momentum = 0.9, .dampening = 0.3},
      {.kind = Kind::kSgd, .lr = 0.1, .momentum = 0.9, .nesterov = true},
  };
  return kRules;
}

// Those of this processor whose loops differ.
inline std::vector<CpuIsa> cpu_levels() {
  std::vector<CpuIsa> levels;
  for (const CpuIsa level : {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (level <= detected_cpu_isa()) levels.push_back(level);
  }
  return levels;
}

// Whether LibTorch's kernels for updates fuse products as the formulas say: those for AVX2 and
// above, unless ATEN_CPU_CAPABILITY holds it down.
inline bool libtorch_fuses_products() {
  return at::get_cpu_capability() != "DEFAULT";
}

// Of one element in 16: zeros, subnormals, huge numbers. The rest lies between 2^-20 and 1.
inline float number(uint64_t index) {
  uint64_t x = (index + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9;
  x ^= x >> 32;
  constexpr float kSpecial[] = {0.0F, -0.0F, 1e-42F, -3e-39F, 1e-30F, 2e19F, -3e38F, 65504.0F};
  if (x % 16 == 0) return kSpecial[x / 16 % 8];
  const float size = std::ldexp(static_cast<float>(x >> 40), -24 - static_cast<int>(x / 16 % 20));
  return (x >> 36 & 1) != 0 ? -size : size;
}

struct CpuArrays {
  int64_t count;
  Format grad_format;
  Format copy_format;  // kFp32: no copy
  std::vector<float> master;
  std::vector<float> states[2];
  std::vector<float> wide_grad;
  std::vector<uint16_t> grad;
  std::vector<uint16_t> copy;

  CpuArrays(int64_t elements, Format of_grad, Format of_copy)
      : count(elements), grad_format(of_grad), copy_format(of_copy) {
    const auto size = static_cast<uint64_t>(elements);
    copy.resize(size);
    for (uint64_t i = 0; i < size; ++i) {
      master.push_back(number(i));
      states[0].push_back(number(i + 3 * size));
      states[1].push_back(std::abs(number(i + 5 * size)));
    }
    set_grad(1);
  }

  // Of both widths; bf16 cuts the fp32 number short, as fp16 its bits are another finite number.
  void set_grad(uint64_t update) {
    wide_grad.clear();
    grad.clear();
    for (uint64_t i = 0; i < master.size(); ++i) {
      wide_grad.push_back(number(i + (7 + update) * master.size()));
      const auto bits = std::bit_cast<uint32_t>(wide_grad.back());
      const uint32_t finite = grad_format == Format::kFp16 ? 0xbfff : 0xffff;
      grad.push_back(static_cast<uint16_t>(bits >> 16 & finite));
    }
  }

  CpuChunk chunk(int64_t begin, int64_t end) {
    const bool wide = grad_format == Format::kFp32;
    return {.count = end - begin,
            .master = master.data() + begin,
            .states = {states[0].data() + begin, states[1].data() + begin},
            .grad = wide ? static_cast<const void*>(wide_grad.data() + begin) : grad.data() + begin,
            .grad_format = grad_format,
            .copy = copy_format == Format::kFp32 ? nullptr : copy.data() + begin,
            .copy_format = copy_format};
  }
  CpuChunk chunk() { return chunk(0, count); }
};

// With states that training could have left: no root of a negative number.
inline CpuArrays arrays_for(const OptimizerConfig& config, int64_t count, Format grad,
                            Format copy) {
  CpuArrays arrays(count, grad, copy);
  if (config.kind == Kind::kAdagrad) {
    for (float& sum : arrays.states[0]) sum = std::abs(sum);
  }
  return arrays;
}

// Of all bits but a NaN's.
inline bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) || (x != x && y != y);
  });
}

inline bool same(const CpuArrays& a, const CpuArrays& b) {
  return same(a.master, b.master) && same(a.states[0], b.states[0]) &&
         same(a.states[1], b.states[1]) && a.copy == b.copy;
}

inline UpdateStep cpu_step(const OptimizerConfig& config, int64_t update, double decay,
                           double factor) {
  return {.update = update,
          .lr = config.lr,
          .betas = config.betas,
          .weight_decay = decay,
          .grad_factor = factor};
}

}  // namespace zeroth::optim
