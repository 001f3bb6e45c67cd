// RMSNorm, one pass forward and one backward. A row belongs to a warp, or to a block when it is
// wide; its elements stay in registers between the sum and the result.
#include "base/launch.cuh"
#include "model/kernels/gpu/fused.h"
#include "model/kernels/gpu/vector.cuh"

namespace zeroth::model::gpu {
namespace {

constexpr int kWarp = 32;
constexpr int kBlock = 256;
constexpr int kMostVectors = 8;       // per thread
constexpr int64_t kWarpWidth = 1024;  // elements of the longest row that belongs to a warp
constexpr int64_t kMostBlocks = 512;  // backward: blocks take rows in turn

// Threads that share a row of this width.
int threads_per_row(int64_t width) {
  return width <= kWarpWidth ? kWarp : kBlock;
}

__device__ float warp_sum(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffff, value, offset);
  return value;
}

// The sum over the threads of a row, in each of them.
template <int kThreads>
__device__ float row_sum(float value) {
  value = warp_sum(value);
  if constexpr (kThreads > kWarp) {
    __shared__ float of_warp[kThreads / kWarp];
    __syncthreads();  // the last call's values are read
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = warp_sum(threadIdx.x % kWarp < kThreads / kWarp ? of_warp[threadIdx.x % kWarp] : 0.f);
  }
  return value;
}

template <typename T, int kThreads, int kVectors>
__global__ void forward_kernel(RmsNormForward call) {
  constexpr int kSize = Vector<T>::kSize;
  const int lane = threadIdx.x % kThreads;
  const int64_t row = int64_t{blockIdx.x} * (kBlock / kThreads) + threadIdx.x / kThreads;
  if (row >= call.rows) return;
  const T* x = static_cast<const T*>(call.x) + row * call.width;
  Vector<T> kept[kVectors];
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = (int64_t{v} * kThreads + lane) * kSize;
    if (column >= call.width) continue;
    kept[v] = load(x + column);
#pragma unroll
    for (int i = 0; i < kSize; ++i) squares += widen(kept[v].at[i]) * widen(kept[v].at[i]);
  }
  const float mean = row_sum<kThreads>(squares) / static_cast<float>(call.width);
  const float scale = 1.f / sqrtf(mean + call.eps);
  if (lane == 0) call.scale[row] = scale;
  T* y = static_cast<T*>(call.y) + row * call.width;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = (int64_t{v} * kThreads + lane) * kSize;
    if (column >= call.width) continue;
    const Vector<T> weight = load(static_cast<const T*>(call.weight) + column);
    Vector<T> out;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      const T normal = narrow<T>(widen(kept[v].at[i]) * scale);  // rounded, as transformers does
      out.at[i] = narrow<T>(widen(normal) * widen(weight.at[i]));
    }
    store(y + column, out);
  }
}

// dx = scale * (w dy - x scale^2 mean(w dy x)); dw = sum over rows of dy x scale.
template <typename T, int kThreads, int kVectors>
__global__ void backward_kernel(RmsNormBackward call) {
  constexpr int kSize = Vector<T>::kSize;
  constexpr int kRows = kBlock / kThreads;
  const int lane = threadIdx.x % kThreads;
  const int64_t first = int64_t{blockIdx.x} * kRows + threadIdx.x / kThreads;
  float dweight[kVectors][kSize] = {};
  for (int64_t row = first; row < call.rows; row += int64_t{gridDim.x} * kRows) {
    const float scale = call.scale[row];
    Vector<T> x[kVectors], dy[kVectors], weight[kVectors];
    float along = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t column = (int64_t{v} * kThreads + lane) * kSize;
      if (column >= call.width) continue;
      x[v] = load(static_cast<const T*>(call.x) + row * call.width + column);
      dy[v] = load(static_cast<const T*>(call.dy) + row * call.width + column);
      weight[v] = load(static_cast<const T*>(call.weight) + column);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const float product = widen(dy[v].at[i]) * widen(x[v].at[i]);
        along += product * widen(weight[v].at[i]);
        dweight[v][i] += product * scale;
      }
    }
    along = row_sum<kThreads>(along) * scale * scale * scale / static_cast<float>(call.width);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t column = (int64_t{v} * kThreads + lane) * kSize;
      if (column >= call.width) continue;
      Vector<T> dx;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const float straight = widen(dy[v].at[i]) * widen(weight[v].at[i]) * scale;
        dx.at[i] = narrow<T>(straight - along * widen(x[v].at[i]));
      }
      store(static_cast<T*>(call.dx) + row * call.width + column, dx);
    }
  }
  if (call.dweight_parts == nullptr) return;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = (int64_t{v} * kThreads + lane) * kSize;
    if (column >= call.width) continue;
    for (int i = 0; i < kSize; ++i)
      call.dweight_parts[first * call.width + column + i] = dweight[v][i];
  }
}

int64_t blocks_of(int64_t rows, int64_t width) {
  const int64_t at_a_time = kBlock / threads_per_row(width);
  return (rows + at_a_time - 1) / at_a_time;
}

int64_t backward_blocks(int64_t rows, int64_t width) {
  const int64_t blocks = blocks_of(rows, width);
  return blocks < kMostBlocks ? blocks : kMostBlocks;
}

template <typename T, int kThreads, int kVectors>
void launch(const RmsNormForward& call, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(blocks_of(call.rows, call.width));
  launch_kernel(forward_kernel<T, kThreads, kVectors>, blocks, kBlock, stream, call);
}

template <typename T, int kThreads, int kVectors>
void launch(const RmsNormBackward& call, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(backward_blocks(call.rows, call.width));
  launch_kernel(backward_kernel<T, kThreads, kVectors>, blocks, kBlock, stream, call);
}

// Only kernels that some width needs are compiled.
template <typename T, int kThreads, typename Call>
void by_vectors(const Call& call, cudaStream_t stream) {
  constexpr int64_t kStride = int64_t{kThreads} * Vector<T>::kSize;  // elements, a vector a thread
  const int64_t vectors = (call.width + kStride - 1) / kStride;
  if constexpr (kThreads == kWarp || kWarpWidth < kStride) {
    if (vectors <= 1) return launch<T, kThreads, 1>(call, stream);
  }
  if (vectors <= 2) return launch<T, kThreads, 2>(call, stream);
  if constexpr (kThreads == kWarp && kWarpWidth <= 4 * kStride) {
    launch<T, kThreads, 4>(call, stream);
  } else {
    if (vectors <= 4) return launch<T, kThreads, 4>(call, stream);
    launch<T, kThreads, kMostVectors>(call, stream);
  }
}

template <typename T, typename Call>
void by_threads(const Call& call, cudaStream_t stream) {
  if (threads_per_row(call.width) == kWarp) return by_vectors<T, kWarp>(call, stream);
  by_vectors<T, kBlock>(call, stream);
}

template <typename Call>
void by_element(Element element, const Call& call, cudaStream_t stream) {
  switch (element) {
    case Element::kFloat:
      return by_threads<float>(call, stream);
    case Element::kBfloat16:
      return by_threads<__nv_bfloat16>(call, stream);
    case Element::kHalf:
      return by_threads<__half>(call, stream);
  }
}

}  // namespace

bool rms_norm_fits(Element element, int64_t width) {
  const int64_t size = element == Element::kFloat ? 4 : 8;
  return width % size == 0 && width / size <= int64_t{kMostVectors} * threads_per_row(width);
}

int64_t rms_norm_parts(int64_t rows, int64_t width) {
  return backward_blocks(rows, width) * (kBlock / threads_per_row(width));
}

void rms_norm_forward(Element element, const RmsNormForward& call, cudaStream_t stream) {
  by_element(element, call, stream);
}

void rms_norm_backward(Element element, const RmsNormBackward& call, cudaStream_t stream) {
  by_element(element, call, stream);
}

}  // namespace zeroth::model::gpu
