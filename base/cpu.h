// What the code has to know of the processor that it runs on.
#pragma once

namespace zeroth {

// Whether Intel made the processor; this and the others false on other architectures than x86.
bool cpu_is_intel();
bool cpu_has_avx2();         // and FMA and F16C
bool cpu_has_avx512();       // F, BW, DQ and VL, which come together but on Xeon Phi
bool cpu_has_avx512_bf16();  // products of bfloat16

}  // namespace zeroth
