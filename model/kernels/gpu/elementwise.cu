// Rotary embedding and SwiGLU: one vector of 16 bytes per thread and operand.
#include "base/launch.cuh"
#include "model/kernels/gpu/fused.h"
#include "model/kernels/gpu/vector.cuh"

namespace zeroth::model::gpu {
namespace {

constexpr int kBlock = 256;

unsigned blocks_of(int64_t threads) {
  return static_cast<unsigned>((threads + kBlock - 1) / kBlock);
}

__device__ int64_t this_thread() {
  return int64_t{blockIdx.x} * kBlock + threadIdx.x;
}

template <typename T>
__global__ void rope_kernel(ApplyRope call, int64_t threads) {
  constexpr int kSize = Vector<T>::kSize;
  if (this_thread() >= threads) return;
  const int64_t per_head = call.half / kSize;
  const int64_t offset = this_thread() % per_head * kSize;
  const int64_t head = this_thread() / per_head;  // of all samples and positions
  const int64_t token = head / call.heads;        // of all samples
  const int64_t position = token % call.seq, sample = token / call.seq;
  const int64_t angle = sample * call.table_batch_stride + position * call.half + offset;
  const int64_t first = head * 2 * call.half + offset;
  const T* const x = static_cast<const T*>(call.x) + token * call.token_stride +
                     (head - token * call.heads) * 2 * call.half + offset;

  const Vector<T> cos = load(static_cast<const T*>(call.cos) + angle);
  const Vector<T> sin = load(static_cast<const T*>(call.sin) + angle);
  const Vector<T> a = load(x);
  const Vector<T> b = load(x + call.half);
  Vector<T> rotated_a, rotated_b;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    const float c = widen(cos.at[i]), s = call.direction * widen(sin.at[i]);
    rotated_a.at[i] = narrow<T>(widen(a.at[i]) * c - widen(b.at[i]) * s);
    rotated_b.at[i] = narrow<T>(widen(b.at[i]) * c + widen(a.at[i]) * s);
  }
  store(static_cast<T*>(call.y) + first, rotated_a);
  store(static_cast<T*>(call.y) + first + call.half, rotated_b);
}

__device__ float sigmoid(float x) {
  return 1.f / (1.f + __expf(-x));
}

// Returns the offset, in rows with gaps, of element `i` of rows without gaps.
__device__ int64_t place(const StridedRows& rows, int64_t i) {
  if (rows.stride == rows.width) return i;
  const int64_t row = i / rows.width;
  return i + row * (rows.stride - rows.width);
}

template <typename T>
__global__ void swiglu_kernel(SwiGluForward call, int64_t threads) {
  if (this_thread() >= threads) return;
  const int64_t at = this_thread() * Vector<T>::kSize, from = place(call.inputs, at);
  const Vector<T> g = load(static_cast<const T*>(call.gate) + from);
  const Vector<T> u = load(static_cast<const T*>(call.up) + from);
  Vector<T> out;
#pragma unroll
  for (int i = 0; i < Vector<T>::kSize; ++i) {
    const float wide = widen(g.at[i]);
    out.at[i] = narrow<T>(wide * sigmoid(wide) * widen(u.at[i]));
  }
  store(static_cast<T*>(call.y) + at, out);
}

template <typename T>
__global__ void swiglu_backward_kernel(SwiGluBackward call, int64_t threads) {
  if (this_thread() >= threads) return;
  const int64_t at = this_thread() * Vector<T>::kSize, from = place(call.inputs, at);
  const Vector<T> d = load(static_cast<const T*>(call.dy) + at);
  const Vector<T> g = load(static_cast<const T*>(call.gate) + from);
  const Vector<T> u = load(static_cast<const T*>(call.up) + from);
  Vector<T> dgate, dup;
#pragma unroll
  for (int i = 0; i < Vector<T>::kSize; ++i) {
    const float wide = widen(g.at[i]), dy = widen(d.at[i]), s = sigmoid(wide);
    dgate.at[i] = narrow<T>(dy * widen(u.at[i]) * s * (1.f + wide * (1.f - s)));
    dup.at[i] = narrow<T>(dy * wide * s);
  }
  store(static_cast<T*>(call.dgate) + from, dgate);
  store(static_cast<T*>(call.dup) + from, dup);
}

}  // namespace

void rotate(ElementType element, const ApplyRope& call, cudaStream_t stream) {
  dispatch_element(element, [&](auto t) {
    using T = decltype(t);
    const int64_t threads = call.batch * call.seq * call.heads * call.half / Vector<T>::kSize;
    launch_kernel(rope_kernel<T>, blocks_of(threads), kBlock, stream, call, threads);
  });
}

void swiglu_forward(ElementType element, const SwiGluForward& call, cudaStream_t stream) {
  dispatch_element(element, [&](auto t) {
    using T = decltype(t);
    const int64_t threads = call.inputs.rows * call.inputs.width / Vector<T>::kSize;
    launch_kernel(swiglu_kernel<T>, blocks_of(threads), kBlock, stream, call, threads);
  });
}

void swiglu_backward(ElementType element, const SwiGluBackward& call, cudaStream_t stream) {
  dispatch_element(element, [&](auto t) {
    using T = decltype(t);
    const int64_t threads = call.inputs.rows * call.inputs.width / Vector<T>::kSize;
    launch_kernel(swiglu_backward_kernel<T>, blocks_of(threads), kBlock, stream, call, threads);
  });
}

}  // namespace zeroth::model::gpu
