// RMSNorm, one pass forward and one backward. A row belongs to a warp, or to a block if it is wide;
// its elements stay in registers between the sum and the result.
//
// The order of sums is fixed, whatever else the device runs. A thread's elements of a row are added
// in the order of their columns, then the lanes of a warp by butterfly, then the warps in their
// order. The backward adds a thread's rows to the weight's gradient in their order.
#include "base/launch.cuh"
#include "model/kernels/gpu/fused.h"
#include "model/kernels/gpu/vector.cuh"

namespace zeroth::model::gpu {
namespace {

constexpr int kWarp = 32;
constexpr int kWarpsBlock = 128;               // threads of a block if a row belongs to a warp
constexpr int64_t kMaxVectors = 2048;          // of a row
constexpr int64_t kBackwardThreads = 1 << 16;  // max of all blocks: they process rows in turn

// A Spread distributes rows over threads: `kThreads` threads with up to `kVectors` vectors of 16
// bytes each, and kRows rows that a thread processes at once, so that all their loads are in flight
// together.
template <int kThreads_, int kVectors_, int kRows_ = 1>
struct Spread {
  static constexpr int kThreads = kThreads_, kVectors = kVectors_, kRows = kRows_;
  static constexpr int kBlock = kThreads == kWarp ? kWarpsBlock : kThreads;
  static constexpr int kWarps = kThreads / kWarp;    // of a row
  static constexpr int kGroups = kBlock / kThreads;  // groups of threads that share a row
  static constexpr int64_t kOfBlock = int64_t{kGroups} * kRows;  // rows of a block at once
};

// Calls take(spread) with the spread that fits rows of this many vectors. The forward keeps one
// array: up to eight loads of a thread are in flight, and a warp needs no barrier. The backward
// keeps two arrays and its sums of the weight's gradient: few vectors of several rows.
template <typename Take>
auto forward_spread(int64_t vectors, Take&& take) {
  if (vectors <= 32) return take(Spread<32, 1>());
  if (vectors <= 64) return take(Spread<32, 2>());
  if (vectors <= 128) return take(Spread<32, 4>());
  if (vectors <= 256) return take(Spread<32, 8>());
  if (vectors <= 512) return take(Spread<64, 8>());
  if (vectors <= 1024) return take(Spread<128, 8>());
  return take(Spread<256, 8>());
}

template <typename Take>
auto backward_spread(int64_t vectors, Take&& take) {
  if (vectors <= 32) return take(Spread<32, 1, 4>());
  if (vectors <= 64) return take(Spread<32, 2, 2>());
  if (vectors <= 128) return take(Spread<128, 1, 4>());
  if (vectors <= 256) return take(Spread<128, 2, 2>());
  if (vectors <= 512) return take(Spread<256, 2, 2>());
  if (vectors <= 1024) return take(Spread<512, 2, 2>());
  return take(Spread<512, 4, 1>());
}

__device__ float warp_sum(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffff, value, offset);
  return value;
}

// Replaces the values by their sums over the threads of each row, in every thread. Consecutive
// calls must alternate `turn`: other threads may still read what the last call wrote.
template <typename S>
__device__ void sum_rows(float (&values)[S::kRows], int turn) {
#pragma unroll
  for (int r = 0; r < S::kRows; ++r) values[r] = warp_sum(values[r]);
  if constexpr (S::kWarps > 1) {
    __shared__ float of_warp[2][S::kRows][S::kWarps];
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int r = 0; r < S::kRows; ++r) of_warp[turn][r][threadIdx.x / kWarp] = values[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      values[r] = of_warp[turn][r][0];
#pragma unroll
      for (int warp = 1; warp < S::kWarps; ++warp) values[r] += of_warp[turn][r][warp];
    }
  }
}

// A ThreadRow gives access to a thread's vectors of one row, with zeros after its end.
template <typename T, typename S>
struct ThreadRow {
  static constexpr int kSize = Vector<T>::kSize;
  int64_t first = int64_t{threadIdx.x % S::kThreads} * kSize;  // column of its first element
  int64_t width;

  __device__ explicit ThreadRow(int64_t of_row) : width(of_row) {}
  __device__ bool has(int v) const { return first + v * S::kThreads * kSize < width; }
  __device__ Words load(const void* array, int64_t row, bool there, int v) const {
    Words words = {};
    const T* const from = static_cast<const T*>(array) + row * width + first;
    if (there && has(v)) words = *reinterpret_cast<const Words*>(from + v * S::kThreads * kSize);
    return words;
  }
  __device__ void load_row(const void* array, int64_t row, bool there,
                           Words (&to)[S::kVectors]) const {
#pragma unroll
    for (int v = 0; v < S::kVectors; ++v) to[v] = load(array, row, there, v);
  }
  // Stores make(vector) for each vector.
  template <typename Make>
  __device__ void store_row(void* array, int64_t row, bool there, Make&& make) const {
    T* const to = static_cast<T*>(array) + row * width + first;
#pragma unroll
    for (int v = 0; v < S::kVectors; ++v) {
      const Words made = make(v);
      if (there && has(v)) *reinterpret_cast<Words*>(to + v * S::kThreads * kSize) = made;
    }
  }
  __device__ void store_sums(float* array, int64_t row, const Wide<T> (&sums)[S::kVectors]) const {
    float* const to = array + row * width + first;
#pragma unroll
    for (int v = 0; v < S::kVectors; ++v) {
      if (!has(v)) continue;
#pragma unroll
      for (int i = 0; i < kSize; i += 4) {
        Wide<float> four;
        memcpy(four.at, sums[v].at + i, sizeof four);
        *reinterpret_cast<Words*>(to + v * S::kThreads * kSize + i) = narrow(four);
      }
    }
  }
};

// Computes x += addend, rounded as the sum is stored.
template <typename T>
__device__ void add(Words& x, const Words& addend) {
  Wide<T> sum = widen<T>(x);
  const Wide<T> more = widen<T>(addend);
#pragma unroll
  for (int i = 0; i < Vector<T>::kSize; ++i) sum.at[i] += more.at[i];
  x = narrow(sum);
}

// Returns the weight with the call's offset.
template <typename T>
__device__ Wide<T> widen_weight(const Words& weight, float offset) {
  Wide<T> wide = widen<T>(weight);
#pragma unroll
  for (int i = 0; i < Vector<T>::kSize; ++i) wide.at[i] += offset;
  return wide;
}

template <typename T, typename S>
__global__ void __launch_bounds__(S::kBlock) forward_kernel(RmsNormForward call) {
  constexpr int kSize = Vector<T>::kSize;
  const int64_t row = int64_t{blockIdx.x} * S::kGroups + threadIdx.x / S::kThreads;
  if (row >= call.rows) return;
  const ThreadRow<T, S> lane(call.width);
  Words x[S::kVectors], weight[S::kVectors];
  lane.load_row(call.x, row, true, x);
  if (call.addend != nullptr) {
    Words addend[S::kVectors];
    lane.load_row(call.addend, row, true, addend);
    lane.store_row(call.sum, row, true, [&](int v) {
      add<T>(x[v], addend[v]);
      return x[v];
    });
  }
  float squares[1] = {0};
#pragma unroll
  for (int v = 0; v < S::kVectors; ++v) {
    const Wide<T> wide = widen<T>(x[v]);
#pragma unroll
    for (int i = 0; i < kSize; ++i) squares[0] += wide.at[i] * wide.at[i];
  }
  lane.load_row(call.weight, 0, true, weight);
  sum_rows<S>(squares, 0);
  const float scale = 1.f / sqrtf(squares[0] / static_cast<float>(call.width) + call.eps);
  if (threadIdx.x % S::kThreads == 0) call.scale[row] = scale;
  lane.store_row(call.y, row, true, [&](int v) {
    Wide<T> out = widen<T>(x[v]);
#pragma unroll
    for (int i = 0; i < kSize; ++i) out.at[i] *= scale;
    if (!call.product_in_fp32) out = widen<T>(narrow(out));  // rounded, as in transformers
    const Wide<T> wide = widen_weight<T>(weight[v], call.offset);
#pragma unroll
    for (int i = 0; i < kSize; ++i) out.at[i] *= wide.at[i];
    return narrow(out);
  });
}

// Adds one vector's part of the weight's gradient, and returns its part of a row's sum of w dy x.
template <typename T>
__device__ float add_products(const Words& x, const Words& dy, const Wide<T>& w, float scale,
                              Wide<T>& dweight) {
  const Wide<T> wide_x = widen<T>(x), wide_dy = widen<T>(dy);
  float along = 0;
#pragma unroll
  for (int i = 0; i < Vector<T>::kSize; ++i) {
    const float product = wide_dy.at[i] * wide_x.at[i];
    along += product * w.at[i];
    dweight.at[i] += product * scale;
  }
  return along;
}

template <typename T>
__device__ Words gradient(const Words& x, const Words& dy, const Wide<T>& w, const Words& residual,
                          float scale, float back) {
  Wide<T> out = widen<T>(dy);
  const Wide<T> wide_x = widen<T>(x), more = widen<T>(residual);
#pragma unroll
  for (int i = 0; i < Vector<T>::kSize; ++i) {
    out.at[i] = out.at[i] * w.at[i] * scale - back * wide_x.at[i] + more.at[i];
  }
  return narrow(out);
}

// Computes dx = scale * (w dy - x scale^2 mean(w dy x)) + residual; dw = sum over rows of dy x
// scale.
template <typename T, typename S>
__global__ void __launch_bounds__(S::kBlock) backward_kernel(RmsNormBackward call) {
  constexpr bool kKeepsResidual = S::kVectors < 4;  // there are registers for it
  const ThreadRow<T, S> lane(call.width);
  const int64_t part = int64_t{blockIdx.x} * S::kGroups + threadIdx.x / S::kThreads;
  const int64_t step = int64_t{gridDim.x} * S::kOfBlock;
  Words weight[S::kVectors];
  lane.load_row(call.weight, 0, true, weight);
  Wide<T> dweight[S::kVectors] = {};
  int turn = 0;
  for (int64_t first = part * S::kRows; first < call.rows; first += step, turn ^= 1) {
    Words x[S::kRows][S::kVectors], dy[S::kRows][S::kVectors];
    float scale[S::kRows], along[S::kRows];
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      const bool there = first + r < call.rows;
      lane.load_row(call.x, first + r, there, x[r]);
      lane.load_row(call.dy, first + r, there, dy[r]);
      scale[r] = there ? call.scale[first + r] : 0;
    }
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      along[r] = 0;
#pragma unroll
      for (int v = 0; v < S::kVectors; ++v) {
        along[r] += add_products(x[r][v], dy[r][v], widen_weight<T>(weight[v], call.offset),
                                 scale[r], dweight[v]);
      }
    }
    Words residual[S::kRows][S::kVectors];  // in flight during the sums
#pragma unroll
    for (int r = 0; kKeepsResidual && r < S::kRows; ++r) {
      const bool there = call.residual != nullptr && first + r < call.rows;
      lane.load_row(call.residual, first + r, there, residual[r]);
    }
    sum_rows<S>(along, turn);
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      const float back = along[r] * scale[r] * scale[r] * scale[r] / static_cast<float>(call.width);
      lane.store_row(call.dx, first + r, first + r < call.rows, [&](int v) {
        const Words more = kKeepsResidual
                               ? residual[r][v]
                               : lane.load(call.residual, first + r, call.residual != nullptr, v);
        return gradient<T>(x[r][v], dy[r][v], widen_weight<T>(weight[v], call.offset), more,
                           scale[r], back);
      });
    }
  }
  if (call.dweight_parts != nullptr) lane.store_sums(call.dweight_parts, part, dweight);
}

template <typename S>
int64_t num_blocks(int64_t rows) {
  return (rows + S::kOfBlock - 1) / S::kOfBlock;
}

template <typename S>
int64_t backward_blocks(int64_t rows) {
  constexpr int64_t kMaxBlocks = kBackwardThreads / S::kBlock;
  return num_blocks<S>(rows) < kMaxBlocks ? num_blocks<S>(rows) : kMaxBlocks;
}

int64_t num_vectors(ElementType element, int64_t width) {
  return width / (element == ElementType::kFloat ? 4 : 8);
}

}  // namespace

bool rms_norm_fits(ElementType element, int64_t width) {
  const int64_t size = element == ElementType::kFloat ? 4 : 8;
  return width % size == 0 && width / size <= kMaxVectors;
}

int64_t rms_norm_parts(ElementType element, int64_t rows, int64_t width) {
  return backward_spread(num_vectors(element, width), [&](auto spread) {
    using S = decltype(spread);
    return backward_blocks<S>(rows) * S::kGroups;
  });
}

void rms_norm_forward(ElementType element, const RmsNormForward& call, cudaStream_t stream) {
  dispatch_element(element, [&](auto t) {
    forward_spread(num_vectors(element, call.width), [&](auto spread) {
      using S = decltype(spread);
      const auto blocks = static_cast<unsigned>(num_blocks<S>(call.rows));
      launch_kernel(forward_kernel<decltype(t), S>, blocks, S::kBlock, stream, call);
    });
  });
}

void rms_norm_backward(ElementType element, const RmsNormBackward& call, cudaStream_t stream) {
  dispatch_element(element, [&](auto t) {
    backward_spread(num_vectors(element, call.width), [&](auto spread) {
      using S = decltype(spread);
      const auto blocks = static_cast<unsigned>(backward_blocks<S>(call.rows));
      launch_kernel(backward_kernel<decltype(t), S>, blocks, S::kBlock, stream, call);
    });
  });
}

}  // namespace zeroth::model::gpu
