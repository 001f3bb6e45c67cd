// What the code has to know of the processor that it runs on.
#pragma once

#include <string>
#include <string_view>

namespace zeroth {

// Instruction sets by which kernels are compiled and libraries chosen; each has all before it.
enum class CpuLevel {
  kPlain,       // what every processor of the architecture has; all that others than x86 have here
  kAvx2,        // and FMA and F16C
  kAvx512,      // F, BW, DQ and VL, which come together but on Xeon Phi
  kAvx512Bf16,  // products of bfloat16
  kAvx512Fp16,  // products of fp16
};

// "plain", "avx2", "avx512", "avx512_bf16", "avx512_fp16": the values of ZEROTH_CPU.
std::string_view name_of(CpuLevel level);

// The highest level that this processor has.
CpuLevel processor_level();

// The level that this process uses, the same in its whole life: the processor's, or the one that
// ZEROTH_CPU in the environment holds it down to. Throws an Error for a value that is no level.
CpuLevel cpu_level();

// The lower one of `processor` and the level that `held` names; empty: `processor`. Throws like
// cpu_level().
CpuLevel held_down(CpuLevel processor, const std::string& held);

// "avx512_bf16", or "avx2 (ZEROTH_CPU; the processor has avx512_bf16)".
std::string cpu_level_text(CpuLevel used = cpu_level(), CpuLevel processor = processor_level());

bool cpu_is_intel();  // its maker; false on other architectures than x86

}  // namespace zeroth
