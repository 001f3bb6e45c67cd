// The loss of the head: one pass over the logits for their log-sum-exp, one that turns them into
// their gradient. A block takes a row.
#include "model/gpu/fused.h"
#include "model/gpu/vector.cuh"

namespace zeroth::model::gpu {
namespace {

constexpr int kBlock = 512;
constexpr int kWarp = 32;

// max and sum of exp(x - max) of some elements.
struct Partial {
  float most = -INFINITY;
  float sum = 0;

  __device__ void add(float x) {
    if (x <= most) {
      sum += __expf(x - most);
    } else {
      sum = sum * __expf(most - x) + 1;
      most = x;
    }
  }
  __device__ void add(const Partial& other) {
    if (other.most == -INFINITY) return;
    const float larger = fmaxf(most, other.most);
    sum = sum * __expf(most - larger) + other.sum * __expf(other.most - larger);
    most = larger;
  }
  __device__ Partial of_neighbour(int offset) const {
    return {__shfl_xor_sync(0xffffffff, most, offset), __shfl_xor_sync(0xffffffff, sum, offset)};
  }
};

// Calls take(column, value) on this thread's elements of the row, in vectors where it is aligned.
template <typename T, typename Take>
__device__ void each_element(const T* row, int64_t vocab, Take&& take) {
  constexpr int kSize = Vector<T>::kSize;
  if (vocab % kSize != 0) {
    for (int64_t i = threadIdx.x; i < vocab; i += kBlock) take(i, row[i]);
    return;
  }
  for (int64_t i = int64_t{threadIdx.x} * kSize; i < vocab; i += int64_t{kBlock} * kSize) {
    const Vector<T> values = load(row + i);
#pragma unroll
    for (int k = 0; k < kSize; ++k) take(i + k, values.at[k]);
  }
}

template <typename T>
__global__ void log_sum_exp_kernel(LogSumExp call) {
  const T* row = static_cast<const T*>(call.logits) + blockIdx.x * call.vocab;
  Partial partial;
  each_element(row, call.vocab, [&](int64_t, T value) { partial.add(widen(value)); });
  for (int offset = kWarp / 2; offset > 0; offset /= 2) partial.add(partial.of_neighbour(offset));
  __shared__ float most[kBlock / kWarp], sum[kBlock / kWarp];
  if (threadIdx.x % kWarp == 0) {
    most[threadIdx.x / kWarp] = partial.most;
    sum[threadIdx.x / kWarp] = partial.sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kBlock / kWarp; ++warp) partial.add(Partial{most[warp], sum[warp]});
  call.lse[blockIdx.x] = partial.most + logf(partial.sum);
}

template <typename T>
__global__ void logit_gradient_kernel(LogitGradient call) {
  constexpr int kSize = Vector<T>::kSize;
  T* row = static_cast<T*>(call.logits) + blockIdx.x * call.vocab;
  const float lse = call.lse[blockIdx.x], scale = *call.scale;
  const int64_t target = call.targets[blockIdx.x];
  const auto gradient = [&](int64_t column, T logit) {
    const float share = __expf(widen(logit) - lse) - (column == target ? 1.f : 0.f);
    return narrow<T>(share * scale);
  };
  if (call.vocab % kSize != 0) {
    for (int64_t i = threadIdx.x; i < call.vocab; i += kBlock) row[i] = gradient(i, row[i]);
    return;
  }
  for (int64_t i = int64_t{threadIdx.x} * kSize; i < call.vocab; i += int64_t{kBlock} * kSize) {
    Vector<T> values = load(row + i);
#pragma unroll
    for (int k = 0; k < kSize; ++k) values.at[k] = gradient(i + k, values.at[k]);
    store(row + i, values);
  }
}

}  // namespace

void log_sum_exp(Element element, const LogSumExp& call, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(call.rows);
  switch (element) {
    case Element::kFloat:
      return log_sum_exp_kernel<float><<<blocks, kBlock, 0, stream>>>(call);
    case Element::kBfloat16:
      return log_sum_exp_kernel<__nv_bfloat16><<<blocks, kBlock, 0, stream>>>(call);
    case Element::kHalf:
      return log_sum_exp_kernel<__half><<<blocks, kBlock, 0, stream>>>(call);
  }
}

void logit_gradient(Element element, const LogitGradient& call, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(call.rows);
  switch (element) {
    case Element::kFloat:
      return logit_gradient_kernel<float><<<blocks, kBlock, 0, stream>>>(call);
    case Element::kBfloat16:
      return logit_gradient_kernel<__nv_bfloat16><<<blocks, kBlock, 0, stream>>>(call);
    case Element::kHalf:
      return logit_gradient_kernel<__half><<<blocks, kBlock, 0, stream>>>(call);
  }
}

}  // namespace zeroth::model::gpu
