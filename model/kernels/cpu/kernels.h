// Loops of the CPU over plain memory, compiled once for each instruction set. This header includes
// no torch, so that no inline function of another library is compiled for an instruction set that
// the processor may not have.
#pragma once

#include <cstdint>

#include "base/float16.h"

namespace zeroth::model::cpu {

// A MatrixView is a part of a matrix in memory: `rows` rows of `columns` elements, `stride` apart.
template <typename T>
struct MatrixView {
  const T* data;
  int64_t stride;
  int64_t rows, columns;
};

// NormRows holds the rows of one RMS norm, [rows, size] without gaps.
template <typename T>
struct NormRows {
  const T* x;
  const T* weight;  // [size]
  float* scale;     // [rows]: written by forward, read by backward
  int64_t rows;
  int64_t size;
  float offset = 0;              // added to the weight
  bool product_in_fp32 = false;  // read by forward: NormSpec::product_in_fp32
};

// HeadPairs holds `lines` heads of one position, [lines, 2 * half], and the position's angles,
// [half].
template <typename T>
struct HeadPairs {
  const T* x;
  const T* cos;
  const T* sin;
  T* y;
  int64_t lines;
  int64_t half;
};

struct TileProduct {
  int64_t m, n, k;
  bool add;
};

// Computes c [m, n] = a [m, k] b [k, n], or += with `add`. Matrices are row-major without gaps; c
// is fp32. A Bf16 b has its rows interleaved in pairs: [k / 2, n, 2].
template <typename Tile>
using MultiplyTile = void (*)(const TileProduct& sizes, const Tile* a, const Tile* b, float* c);

// A HeadArray holds some heads, [seq, heads, dim]: element (token, head, channel) lies at token *
// stride + head * dim + channel.
template <typename T>
struct HeadArray {
  T* data;
  int64_t stride;
};

// A CausalWindow determines the keys that a query sees: itself and those before it, of the last
// `window` tokens, from its first_keys on.
struct CausalWindow {
  int64_t seq;
  int64_t window;             // number of tokens, the query included; 0: all
  const int64_t* first_keys;  // [seq], from 0 to the query itself; null: all 0
};

// AttentionHeads describes the attention of the query heads that share one key head, in one row of
// the batch. Products use tiles of T, or of fp32.
template <typename T, typename Tile>
struct AttentionHeads {
  HeadArray<const T> q;       // [seq, group, dim]
  HeadArray<const T> k;       // [seq, dim]
  HeadArray<const T> v;       // [seq, v_dim]
  HeadArray<T> out;           // [seq, group, v_dim]
  float* lse;                 // [group, seq]: log of the sum of exponentials of a query's scores
  int64_t group, dim, v_dim;  // dim and v_dim are multiples of 16
  CausalWindow visible;
  float scale;
  float softcap;        // a score s becomes softcap * tanh(s / softcap); 0: it stays
  const float* sinks;   // [group]: a score without a value in each sum; null: none
  const float* slopes;  // [group]: what a score loses for each token between key and query; null: 0
  MultiplyTile<Tile> multiply;
};

template <typename T>
struct AttentionGradients {
  HeadArray<const T> dout;  // shape of out
  HeadArray<T> dq;          // shape of q
  HeadArray<T> dk, dv;      // shapes of k and v; overwritten, not accumulated
  float* dsinks;            // [group], overwritten; null without sinks
};

template <typename T, typename Tile>
struct AttentionKernels {
  // Returns the floats of scratch memory that one call of either kernel requires.
  int64_t (*scratch)(int64_t seq, int64_t dim, int64_t v_dim);
  void (*forward)(const AttentionHeads<T, Tile>& heads, float* scratch);
  void (*backward)(const AttentionHeads<T, Tile>& heads, const AttentionGradients<T>& gradients,
                   float* scratch);
};

template <typename T>
struct DtypeKernels {
  void (*rms_norm)(const NormRows<T>& rows, double eps, T* y);
  // Adds to dweight [size]. dx and dweight may be null.
  void (*rms_norm_backward)(const NormRows<T>& rows, const T* dy, T* dx, float* dweight);
  void (*rotate)(const HeadPairs<T>& pairs, float direction);
  // Of SiLU, then of GELU by tanh.
  void (*gated_activation[2])(const T* gate, const T* up, T* y, int64_t count);
  void (*gated_activation_backward[2])(const T* dy, const T* gate, const T* up, T* dgate, T* dup,
                                       int64_t count);
  // Returns log(sum(exp(logits))) of one row.
  float (*log_sum_exp)(const T* logits, int64_t size);
  // Computes logits = (exp(logits - lse) - 1 at the target) * scale in place, for one row.
  void (*logit_gradient)(T* logits, int64_t size, float lse, int64_t target, float scale);
  AttentionKernels<T, float> attention;
  // Copy [rows, columns] to fp32, transposed to fp32, and back from fp32; rows of `to` are `stride`
  // apart.
  void (*widen)(const MatrixView<T>& from, float* to, int64_t stride);
  void (*widen_transposed)(const MatrixView<T>& from, float* to,
                           int64_t stride);  // [columns, rows]
  void (*narrow)(const MatrixView<float>& from, T* to, int64_t stride);
  // Computes out [count] of codes, two in a byte, and a scale for each 64 of them.
  void (*dequantize_nf4)(const uint8_t* codes, const float* scales, T* out, int64_t count);
};

struct CpuKernels {
  DtypeKernels<float> fp32;
  DtypeKernels<Bf16> bf16;
  DtypeKernels<Fp16> fp16;
  AttentionKernels<Bf16, Bf16> bf16_attention;  // products of bf16 tiles
  // Computes codes [(count + 1) / 2] and absmax [(count + 63) / 64] of x [count].
  void (*quantize_nf4)(const float* x, int64_t count, uint8_t* codes, float* absmax);
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
