// The elementwise passes of a transformer layer as one CUDA kernel each. Arguments are plain
// pointers and sizes: this header includes neither torch nor the blocks; fused_ops.cpp checks what
// is passed here.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace zeroth::model::gpu {

enum class ElementType { kFloat, kBfloat16, kHalf };

// x, y [rows, width]; weight [width]; scale [rows] fp32, one over the root of the mean square. With
// an addend [rows, width] y is the norm of x + addend, which is written to `sum`.
struct RmsNormForward {
  const void* x;
  const void* weight;
  void* y;
  float* scale;
  int64_t rows;
  int64_t width;
  float eps;
  const void* addend = nullptr;
  void* sum = nullptr;
  float offset = 0;              // added to the weight
  bool product_in_fp32 = false;  // model::NormSpec::product_in_fp32
};

// dy, x, dx [rows, width]; dweight_parts [rms_norm_parts(...), width] fp32, whose sum over the rows
// is the gradient of the weight; null if that is not required. `residual` [rows, width] is added to
// dx before it is rounded, unless it is null.
struct RmsNormBackward {
  const void* dy;
  const void* x;
  const void* weight;
  const float* scale;
  void* dx;
  float* dweight_parts;
  int64_t rows;
  int64_t width;
  const void* residual = nullptr;
  float offset = 0;  // added to the weight
};

// Returns whether the kernels support rows of this width: full vectors of 16 bytes, at most 2048 of
// them.
bool rms_norm_fits(ElementType element, int64_t width);
// Returns the number of rows of dweight_parts. It is equal for equal arguments: sums do not depend
// on the device's load.
int64_t rms_norm_parts(ElementType element, int64_t rows, int64_t width);

void rms_norm_forward(ElementType element, const RmsNormForward& call, cudaStream_t stream);
void rms_norm_backward(ElementType element, const RmsNormBackward& call, cudaStream_t stream);

// x, y [batch, seq, heads, 2 * half], each head as two halves that turn as pairs; cos, sin [batch
// or 1, seq, half] with `table_batch_stride` elements from one sample to the next (0 for 1).
// `token_stride` elements of x lie from one token to the next, across all samples; y has no gaps.
struct ApplyRope {
  const void* x;
  const void* cos;
  const void* sin;
  void* y;
  int64_t batch, seq, heads, half;
  int64_t token_stride;
  int64_t table_batch_stride;
  float direction;  // -1 turns back
};

void rotate(ElementType element, const ApplyRope& call, cudaStream_t stream);

// StridedRows are rows of `width` elements, full vectors of 16 bytes, with `stride` elements from
// one row to the next.
struct StridedRows {
  int64_t rows;
  int64_t width;
  int64_t stride;
};

// y = silu(gate) * up, or gelu(gate) * up by GELU's tanh formula; gate and up [rows, width] with a
// stride; y has no gaps.
struct GatedActivation {
  const void* gate;
  const void* up;
  void* y;
  StridedRows inputs;
  bool gelu_tanh;
};

void gated_activation(ElementType element, const GatedActivation& call, cudaStream_t stream);

// dgate and dup have the stride of gate and up; dy has no gaps.
struct GatedActivationBackward {
  const void* dy;
  const void* gate;
  const void* up;
  void* dgate;
  void* dup;
  StridedRows inputs;
  bool gelu_tanh;
};

void gated_activation_backward(ElementType element, const GatedActivationBackward& call,
                               cudaStream_t stream);

// table [.., width] += the sums of dy [count, width] over the positions of each row: `rows` [count]
// ascending, `order` [count] their indices in dy. `parts` [add_rows_parts(count), width] is
// scratch. dy has the table's element type, or the table is fp32.
struct AddRows {
  void* table;
  const void* dy;
  const int64_t* rows;
  const int64_t* order;
  float* parts;
  int64_t count;
  int64_t width;
};

int64_t add_rows_parts(int64_t count);
void add_rows(ElementType table, ElementType dy, const AddRows& call, cudaStream_t stream);

// logits [rows, vocab], `row_stride` elements from one row to the next; lse [rows] fp32 =
// log(sum(exp(row))), written. `vectors` is set if every row begins at a multiple of 16 bytes.
struct LogSumExp {
  const void* logits;
  float* lse;
  int64_t rows;
  int64_t vocab;
  int64_t row_stride;
  bool vectors;
};

void log_sum_exp(ElementType element, const LogSumExp& call, cudaStream_t stream);

// Computes (exp(logit - lse) - 1 at the target) * scale in place; targets [rows], scale one fp32 on
// the device.
struct LogitGradient {
  void* logits;
  const float* lse;
  const int64_t* targets;
  const float* scale;
  int64_t rows;
  int64_t vocab;
  int64_t row_stride;
  bool vectors;
};

void logit_gradient(ElementType element, const LogitGradient& call, cudaStream_t stream);

// out [count] = number of the code * scale of its block of `block` weights; see
// model/kernels/nf4.h. codes [(count + 1) / 2], two in a byte. With nested_absmax, absmax holds a
// code for each block, otherwise the bytes of an fp32. `vectors` is set if out begins at a multiple
// of 16 bytes.
struct DequantizeNf4 {
  const uint8_t* codes;
  const uint8_t* absmax;
  const float* nested_absmax;  // of groups of blocks of the full weight; null without them
  const float* mean;           // one fp32 on the device, with nested_absmax
  void* out;
  int64_t count;
  int64_t first_block, blocks_per_row, row_step;  // model::BlockPlace
  int64_t block;
  int64_t blocks_per_group;
  bool vectors;
  float numbers[16];
  float absmax_map[256];
};

void dequantize_nf4(ElementType element, const DequantizeNf4& call, cudaStream_t stream);

}  // namespace zeroth::model::gpu
