// CUDA's own conversions, which its headers have for the host too.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace zeroth::emulated {

uint16_t cuda_bf16_bits(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
float cuda_from_bf16(uint16_t bits) {
  return __bfloat162float(__ushort_as_bfloat16(bits));
}
uint16_t cuda_half_bits(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
float cuda_from_half(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}

}  // namespace zeroth::emulated
