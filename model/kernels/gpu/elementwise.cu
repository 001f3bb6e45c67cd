// Rotary embedding and gated activation: one vector of 16 bytes per thread and operand.
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

// The activation of a gate is gate * sigmoid, its derivative sigmoid * slope.
struct GateTerms {
  float gate, sigmoid, slope;
};

__device__ GateTerms silu(float gate) {
  const float s = 1.f / (1.f + __expf(-gate));
  return {gate, s, 1.f + gate * (1.f - s)};
}

// See gelu_tanh() in model/kernels/cpu/elementwise.h. NaN stays NaN.
__device__ GateTerms gelu_tanh(float gate) {
  constexpr float kA = 1.5957691216f, kB = 0.044715f * kA;
  const float above = gate < -10.f ? -10.f : gate;
  const float x = above > 10.f ? 10.f : above, square = x * x;
  const float e = __expf(-x * (kA + kB * square)), s = 1.f / (1.f + e);
  return {above, s, 1.f + x * (e * s) * (kA + 3 * kB * square)};
}

// Returns the offset, in rows with gaps, of element `i` of rows without gaps.
__device__ int64_t place(const StridedRows& rows, int64_t i) {
  if (rows.stride == rows.width) return i;
  const int64_t row = i / rows.width;
  return i + row * (rows.stride - rows.width);
}

template <typename T>
__global__ void gated_activation_kernel(GatedActivation call, int64_t threads) {
  if (this_thread() >= threads) return;
  const int64_t at = this_thread() * Vector<T>::kSize, from = place(call.inputs, at);
  const Vector<T> g = load(static_cast<const T*>(call.gate) + from);
  const Vector<T> u = load(static_cast<const T*>(call.up) + from);
  Vector<T> out;
#pragma unroll
  for (int i = 0; i < Vector<T>::kSize; ++i) {
    const float wide = widen(g.at[i]);
    const GateTerms terms = call.gelu_tanh ? gelu_tanh(wide) : silu(wide);
    out.at[i] = narrow<T>(terms.gate * terms.sigmoid * widen(u.at[i]));
  }
  store(static_cast<T*>(call.y) + at, out);
}

template <typename T>
__global__ void gated_activation_backward_kernel(GatedActivationBackward call, int64_t threads) {
  if (this_thread() >= threads) return;
  const int64_t at = this_thread() * Vector<T>::kSize, from = place(call.inputs, at);
  const Vector<T> d = load(static_cast<const T*>(call.dy) + at);
  const Vector<T> g = load(static_cast<const T*>(call.gate) + from);
  const Vector<T> u = load(static_cast<const T*>(call.up) + from);
  Vector<T> dgate, dup;
#pragma unroll
  for (int i = 0; i < Vector<T>::kSize; ++i) {
    const float wide = widen(g.at[i]), dy = widen(d.at[i]);
    const GateTerms terms = call.gelu_tanh ? gelu_tanh(wide) : silu(wide);
    dgate.at[i] = narrow<T>(dy * widen(u.at[i]) * terms.sigmoid * terms.slope);
    dup.at[i] = narrow<T>(dy * terms.gate * terms.sigmoid);
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

void gated_activation(ElementType element, const GatedActivation& call, cudaStream_t stream) {
  dispatch_element(element, [&](auto t) {
    using T = decltype(t);
    const int64_t threads = call.inputs.rows * call.inputs.width / Vector<T>::kSize;
    launch_kernel(gated_activation_kernel<T>, blocks_of(threads), kBlock, stream, call, threads);
  });
}

void gated_activation_backward(ElementType element, const GatedActivationBackward& call,
                               cudaStream_t stream) {
  dispatch_element(element, [&](auto t) {
    using T = decltype(t);
    const int64_t threads = call.inputs.rows * call.inputs.width / Vector<T>::kSize;
    launch_kernel(gated_activation_backward_kernel<T>, blocks_of(threads), kBlock, stream, call,
                  threads);
  });
}

}  // namespace zeroth::model::gpu
