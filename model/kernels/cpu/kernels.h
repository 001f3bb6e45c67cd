// Loops of the CPU over plain memory, compiled once for each instruction set. Knows no torch, so
// that no inline function of another library is compiled for a processor that may not be there.
#pragma once

#include <cstdint>

#include "base/float16.h"

namespace zeroth::model::cpu {

// A part of a matrix in memory: `rows` rows of `columns` elements, `stride` apart.
template <typename T>
struct MatrixView {
  const T* data;
  int64_t stride;
  int64_t rows, columns;
};

// Rows of one RMS norm, [rows, size] without gaps.
template <typename T>
struct NormRows {
  const T* x;
  const T* weight;  // [size]
  float* scale;     // [rows]: written by forward, read by backward
  int64_t rows;
  int64_t size;
};

// `lines` heads of one position, [lines, 2 * half], and the position's angles, [half].
template <typename T>
struct HeadPairs {
  const T* x;
  const T* cos;
  const T* sin;
  T* y;
  int64_t lines;
  int64_t half;
};

// One row of logits.
template <typename T>
struct LogitRow {
  T* logits;
  int64_t size;
};

struct TileProduct {
  int64_t m, n, k;
  bool add;
};

// c [m, n] = a [m, k] b [k, n], or += with `add`; row-major without gaps, c fp32. A Bf16 b has its
// rows interleaved by pairs: [k / 2, n, 2].
template <typename Tile>
using MultiplyTile = void (*)(const TileProduct& sizes, const Tile* a, const Tile* b, float* c);

// Attention of the query heads that share one head of keys, in one row of the batch. Element
// (token, head, channel) of q, out and their gradients lies at token * stride + head * dim +
// channel. Products are of tiles of T, or of fp32 ones.
template <typename T, typename Tile>
struct AttentionHeads {
  const T* q;  // [seq, group, dim]
  const T* k;  // [seq, dim]
  const T* v;  // [seq, dim]
  T* out;      // [seq, group, dim]
  float* lse;  // [group, seq]: log of the sum of exponentials of a query's scores
  int64_t q_stride, k_stride, v_stride, out_stride;
  int64_t seq, group, dim;  // dim is a multiple of 16
  int64_t window;           // how many tokens a token sees, itself included; 0: all before it
  float scale;
  MultiplyTile<Tile> multiply;
};

template <typename T>
struct AttentionGradients {
  const T* dout;  // as out
  T* dq;          // as q, with dq_stride
  T* dk;          // as k, with dk_stride; written, not added to
  T* dv;
  int64_t dout_stride, dq_stride, dk_stride, dv_stride;
};

template <typename T, typename Tile>
struct AttentionKernels {
  // Floats of scratch memory that one call of either takes.
  int64_t (*scratch)(int64_t seq, int64_t dim);
  void (*forward)(const AttentionHeads<T, Tile>& heads, float* scratch);
  void (*backward)(const AttentionHeads<T, Tile>& heads, const AttentionGradients<T>& gradients,
                   float* scratch);
};

template <typename T>
struct DtypeKernels {
  void (*rms_norm)(const NormRows<T>& rows, double eps, T* y);
  // dx may be null. Adds to dweight [size], which may be null.
  void (*rms_norm_backward)(const NormRows<T>& rows, const T* dy, T* dx, float* dweight);
  void (*rotate)(const HeadPairs<T>& pairs, float direction);
  void (*swiglu)(const T* gate, const T* up, T* y, int64_t count);
  void (*swiglu_backward)(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count);
  // log(sum(exp(row)))
  float (*log_sum_exp)(const LogitRow<T>& row);
  // row = (exp(row - lse) - 1 at the target) * scale
  void (*logit_gradient)(const LogitRow<T>& row, float lse, int64_t target, float scale);
  AttentionKernels<T, float> attention;
  // to [rows, columns] = from, its transpose, and back; rows of `to` are `stride` apart.
  void (*widen)(const MatrixView<T>& from, float* to, int64_t stride);
  void (*widen_transposed)(const MatrixView<T>& from, float* to,
                           int64_t stride);  // [columns, rows]
  void (*narrow)(const MatrixView<float>& from, T* to, int64_t stride);
};

struct CpuKernels {
  DtypeKernels<float> fp32;
  DtypeKernels<Bf16> bf16;
  DtypeKernels<Fp16> fp16;
  AttentionKernels<Bf16, Bf16> bf16_attention;  // by products of bf16 tiles
};

namespace plain {
extern const CpuKernels kKernels;
}
namespace avx2 {
extern const CpuKernels kKernels;
}
namespace avx512 {
extern const CpuKernels kKernels;
}

}  // namespace zeroth::model::cpu
