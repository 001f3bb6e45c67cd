// The loss of the head: one pass over the logits for their log-sum-exp, one that turns them into
// their gradient. A block processes one row.
#include "base/launch.cuh"
#include "model/kernels/gpu/fused.h"
#include "model/kernels/gpu/vector.cuh"

#define ZEROTH_INLINE __device__ __forceinline__

namespace zeroth::model::gpu {
namespace {

ZEROTH_INLINE float exponential(float x) {
  return __expf(x);
}

}  // namespace
}  // namespace zeroth::model::gpu

#include "model/kernels/gpu/exponential_sum.h"

namespace zeroth::model::gpu {
namespace {

constexpr int kBlock = 512;
constexpr int kWarp = 32;

__device__ ExponentialSum neighbor_sum(const ExponentialSum& own, int offset) {
  return {__shfl_xor_sync(0xffffffff, own.maximum, offset),
          __shfl_xor_sync(0xffffffff, own.sum, offset)};
}

// Calls whole(first column, vector) for this thread's vectors of the row and take(column) for its
// other elements.
template <typename T, typename Whole, typename Take>
__device__ void each_element(const T* row, int64_t vocab, bool vectors, Whole&& whole,
                             Take&& take) {
  constexpr int kSize = Vector<T>::kSize;
  const int64_t vectorized = vectors ? vocab / kSize * kSize : 0;
  for (int64_t i = int64_t{threadIdx.x} * kSize; i < vectorized; i += int64_t{kBlock} * kSize) {
    whole(i, load(row + i));
  }
  for (int64_t i = vectorized + threadIdx.x; i < vocab; i += kBlock) take(i);
}

template <typename T>
__global__ void log_sum_exp_kernel(LogSumExp call) {
  const T* row = static_cast<const T*>(call.logits) + blockIdx.x * call.row_stride;
  ExponentialSum own;
  each_element(
      row, call.vocab, call.vectors,
      [&](int64_t, const Vector<T>& values) {
#pragma unroll
        for (int k = 0; k < Vector<T>::kSize; ++k) own.add(widen(values.at[k]));
      },
      [&](int64_t i) { own.add(widen(row[i])); });
  for (int offset = kWarp / 2; offset > 0; offset /= 2) own.add(neighbor_sum(own, offset));
  __shared__ float maximum[kBlock / kWarp], sum[kBlock / kWarp];
  if (threadIdx.x % kWarp == 0) {
    maximum[threadIdx.x / kWarp] = own.maximum;
    sum[threadIdx.x / kWarp] = own.sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kBlock / kWarp; ++warp) own.add({maximum[warp], sum[warp]});
  call.lse[blockIdx.x] = own.log();
}

template <typename T>
__global__ void logit_gradient_kernel(LogitGradient call) {
  T* row = static_cast<T*>(call.logits) + blockIdx.x * call.row_stride;
  const float lse = call.lse[blockIdx.x], scale = *call.scale;
  const int64_t target = call.targets[blockIdx.x];
  const auto gradient = [&](int64_t column, T logit) {
    const float share = exponential(widen(logit) - lse) - (column == target ? 1.f : 0.f);
    return narrow<T>(share * scale);
  };
  each_element(
      row, call.vocab, call.vectors,
      [&](int64_t i, Vector<T> values) {
#pragma unroll
        for (int k = 0; k < Vector<T>::kSize; ++k) values.at[k] = gradient(i + k, values.at[k]);
        store(row + i, values);
      },
      [&](int64_t i) { row[i] = gradient(i, row[i]); });
}

}  // namespace

void log_sum_exp(ElementType element, const LogSumExp& call, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(call.rows);
  dispatch_element(element, [&](auto t) {
    launch_kernel(log_sum_exp_kernel<decltype(t)>, blocks, kBlock, stream, call);
  });
}

void logit_gradient(ElementType element, const LogitGradient& call, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(call.rows);
  dispatch_element(element, [&](auto t) {
    launch_kernel(logit_gradient_kernel<decltype(t)>, blocks, kBlock, stream, call);
  });
}

}  // namespace zeroth::model::gpu
