#include "base/cpu.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace zeroth {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"plain", "avx2", "avx512", "avx512_bf16",
                                                    "avx512_fp16"};

}  // namespace

#if defined(__x86_64__)

namespace {

// Of clang's __builtin_cpu_supports only newer ones know these two.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool has_avx512_fp16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 23 & 1) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c();
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

}  // namespace

CpuLevel processor_level() {
  __builtin_cpu_init();
  if (!has_avx2()) return CpuLevel::kPlain;
  if (!has_avx512()) return CpuLevel::kAvx2;
  if (__builtin_cpu_supports("avx512bf16") == 0) return CpuLevel::kAvx512;
  return has_avx512_fp16() ? CpuLevel::kAvx512Fp16 : CpuLevel::kAvx512Bf16;
}

bool cpu_is_intel() {
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
}

#else

CpuLevel processor_level() {
  return CpuLevel::kPlain;
}

bool cpu_is_intel() {
  return false;
}

#endif

std::string_view name_of(CpuLevel level) {
  return kNames.at(static_cast<size_t>(level));
}

CpuLevel held_down(CpuLevel processor, const std::string& held) {
  if (held.empty()) return processor;
  const auto* const found = std::find(kNames.begin(), kNames.end(), held);
  if (found == kNames.end()) {
    throw Error("environment variable ZEROTH_CPU={} is none of {}", held, fmt::join(kNames, ", "));
  }
  return std::min(processor, static_cast<CpuLevel>(found - kNames.begin()));
}

CpuLevel cpu_level() {
  static const CpuLevel level = [] {
    const char* const held = std::getenv("ZEROTH_CPU");
    return held_down(processor_level(), held == nullptr ? "" : held);
  }();
  return level;
}

std::string cpu_level_text(CpuLevel used, CpuLevel processor) {
  if (used == processor) return std::string(name_of(used));
  return fmt::format("{} (ZEROTH_CPU; the processor has {})", name_of(used), name_of(processor));
}

}  // namespace zeroth
