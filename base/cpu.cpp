#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace zeroth {

#if defined(__x86_64__)

namespace {

// Of clang's __builtin_cpu_supports only newer ones know it.
bool cpu_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

bool cpu_is_intel() {
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
}

bool cpu_has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         cpu_has_f16c();
}

bool cpu_has_avx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

bool cpu_has_avx512_bf16() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0;
}

#else

bool cpu_is_intel() {
  return false;
}

bool cpu_has_avx2() {
  return false;
}

bool cpu_has_avx512() {
  return false;
}

bool cpu_has_avx512_bf16() {
  return false;
}

#endif

}  // namespace zeroth
