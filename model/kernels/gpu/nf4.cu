// Weights in NF4: a thread reads as many codes as make one vector of 16 bytes.
#include "base/launch.cuh"
#include "model/kernels/gpu/fused.h"
#include "model/kernels/gpu/vector.cuh"

namespace zeroth::model::gpu {
namespace {

constexpr int kBlock = 256;
constexpr int kNumbers = 16, kAbsmaxCodes = 256;
static_assert(kBlock == kAbsmaxCodes, "each thread copies one entry of the table");

// Returns the scale of a block: its maximum, or with double quantization the number of its code
// times the maximum of its group, plus the mean. Without a fused multiply-add (CMakeLists.txt), as
// bitsandbytes computes it.
__device__ float scale_of(const DequantizeNf4& call, const float* absmax_map, int64_t block) {
  if (call.nested_absmax == nullptr) return reinterpret_cast<const float*>(call.absmax)[block];
  const int64_t in_full =
      call.first_block + block / call.blocks_per_row * call.row_step + block % call.blocks_per_row;
  const float product =
      absmax_map[call.absmax[block]] * call.nested_absmax[in_full / call.blocks_per_group];
  return product + *call.mean;
}

template <typename T>
__global__ void dequantize_nf4_kernel(DequantizeNf4 call) {
  constexpr int kSize = Vector<T>::kSize;
  __shared__ float numbers[kNumbers];
  __shared__ float absmax_map[kAbsmaxCodes];
  if (threadIdx.x < kNumbers) numbers[threadIdx.x] = call.numbers[threadIdx.x];
  if (call.nested_absmax != nullptr) absmax_map[threadIdx.x] = call.absmax_map[threadIdx.x];
  __syncthreads();
  const int64_t first = (int64_t{blockIdx.x} * kBlock + threadIdx.x) * kSize;
  if (first >= call.count) return;
  const float scale = scale_of(call, absmax_map, first / call.block);
  T* const out = static_cast<T*>(call.out) + first;
  if (call.vectors && first + kSize <= call.count) {
    Vector<T> values;
#pragma unroll
    for (int i = 0; i < kSize; i += 2) {
      const unsigned pair = call.codes[(first + i) / 2];
      values.at[i] = narrow<T>(numbers[pair >> 4] * scale);
      values.at[i + 1] = narrow<T>(numbers[pair & 15] * scale);
    }
    store(out, values);
    return;
  }
  for (int i = 0; i < kSize && first + i < call.count; ++i) {
    const unsigned pair = call.codes[(first + i) / 2];
    out[i] = narrow<T>(numbers[i % 2 == 0 ? pair >> 4 : pair & 15] * scale);
  }
}

}  // namespace

void dequantize_nf4(ElementType element, const DequantizeNf4& call, cudaStream_t stream) {
  dispatch_element(element, [&](auto t) {
    using T = decltype(t);
    constexpr int64_t kOfBlock = int64_t{kBlock} * Vector<T>::kSize;
    const auto blocks = static_cast<unsigned>((call.count + kOfBlock - 1) / kOfBlock);
    launch_kernel(dequantize_nf4_kernel<T>, blocks, kBlock, stream, call);
  });
}

}  // namespace zeroth::model::gpu
