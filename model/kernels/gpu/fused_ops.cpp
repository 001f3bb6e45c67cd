// The CUDA kernels of the operators in model/kernels/fused.h. Loading the library registers them.
// Inputs that a kernel does not support (odd sizes, unaligned views) go to the formula.
#include <ATen/ops/sort.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/dynamic_map.h"
#include "model/kernels/fused_formula.h"
#include "model/kernels/gpu/fused.h"
#include "model/kernels/nf4_values.h"

namespace zeroth::model::gpu {
namespace {

using torch::Tensor;

std::optional<ElementType> element_type(const Tensor& x) {
  switch (x.scalar_type()) {
    case torch::kFloat:
      return ElementType::kFloat;
    case torch::kBFloat16:
      return ElementType::kBfloat16;
    case torch::kHalf:
      return ElementType::kHalf;
    default:
      return std::nullopt;
  }
}

bool aligned(const Tensor& x) {
  return x.is_contiguous() && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

int64_t vector_size(const Tensor& x) {
  return 16 / x.element_size();
}

cudaStream_t stream_of(const Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

// Queues a kernel for the element type of x on the current stream of its device.
template <typename Call>
void run(void (*kernel)(ElementType, const Call&, cudaStream_t), const Tensor& x,
         const Call& call) {
  const c10::cuda::CUDAGuard guard(x.device());
  kernel(*element_type(x), call, stream_of(x));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

bool rms_norm_supports(const Tensor& x, const Tensor& weight) {
  const auto element = element_type(x);
  return element && x.numel() > 0 && x.scalar_type() == weight.scalar_type() && aligned(weight) &&
         rms_norm_fits(*element, weight.size(0));
}

// Returns whether rows of this tensor can be read along with those of x.
bool has_same_layout(const Tensor& other, const Tensor& x) {
  return aligned(other) && other.scalar_type() == x.scalar_type() && other.sizes() == x.sizes();
}

struct NormFactors {
  double eps, offset;
  bool product_in_fp32;
};

// Returns y and scale of x, or of x + addend, which is written to sum, if these are defined.
std::tuple<Tensor, Tensor> run_rms_norm(const Tensor& x, const Tensor& weight,
                                        const NormFactors& factors, const Tensor& addend = {},
                                        const Tensor& sum = {}) {
  const int64_t width = weight.size(0);
  const int64_t rows = x.numel() / width;
  Tensor y = at::empty_like(x);
  Tensor scale = at::empty({rows}, x.options().dtype(torch::kFloat));
  run(rms_norm_forward, x,
      {.x = x.const_data_ptr(),
       .weight = weight.const_data_ptr(),
       .y = y.data_ptr(),
       .scale = scale.data_ptr<float>(),
       .rows = rows,
       .width = width,
       .eps = static_cast<float>(factors.eps),
       .addend = addend.defined() ? addend.const_data_ptr() : nullptr,
       .sum = sum.defined() ? sum.data_ptr() : nullptr,
       .offset = static_cast<float>(factors.offset),
       .product_in_fp32 = factors.product_in_fp32});
  return {y, scale};
}

std::tuple<Tensor, Tensor> rms_norm_cuda(const Tensor& any_x, const Tensor& weight, double eps,
                                         double offset, bool product_in_fp32) {
  const Tensor x = any_x.contiguous();
  if (!rms_norm_supports(x, weight) || !aligned(x))
    return formula::rms_norm(x, weight, eps, offset, product_in_fp32);
  return run_rms_norm(x, weight, {eps, offset, product_in_fp32});
}

std::tuple<Tensor, Tensor, Tensor> add_rms_norm_cuda(const Tensor& any_x, const Tensor& any_addend,
                                                     const Tensor& weight, double eps,
                                                     double offset, bool product_in_fp32) {
  const Tensor x = any_x.contiguous(), addend = any_addend.contiguous();
  if (!rms_norm_supports(x, weight) || !aligned(x) || !has_same_layout(addend, x)) {
    return formula::add_rms_norm(x, addend, weight, eps, offset, product_in_fp32);
  }
  Tensor sum = at::empty_like(x);
  auto [y, scale] = run_rms_norm(x, weight, {eps, offset, product_in_fp32}, addend, sum);
  return {sum, y, scale};
}

std::tuple<Tensor, Tensor> rms_norm_backward_cuda(const Tensor& any_dy, at::TensorList saved,
                                                  const std::optional<Tensor>& any_residual,
                                                  std::array<bool, 2> output_mask, double offset) {
  const Tensor x = saved[0].contiguous(), dy = any_dy.contiguous();
  const Tensor &weight = saved[1], &scale = saved[2];
  const Tensor residual = any_residual ? any_residual->contiguous() : Tensor();
  if (!rms_norm_supports(x, weight) || !aligned(x) || !has_same_layout(dy, x) ||
      (residual.defined() && !has_same_layout(residual, x))) {
    return formula::rms_norm_backward(dy, saved, any_residual, output_mask, offset);
  }
  const int64_t width = weight.size(0);
  const int64_t rows = x.numel() / width;
  Tensor dx = at::empty_like(x);
  const int64_t count = output_mask[1] ? rms_norm_parts(*element_type(x), rows, width) : 0;
  Tensor parts = at::empty({count, width}, scale.options());
  run(rms_norm_backward, x,
      {.dy = dy.const_data_ptr(),
       .x = x.const_data_ptr(),
       .weight = weight.const_data_ptr(),
       .scale = scale.const_data_ptr<float>(),
       .dx = dx.data_ptr(),
       .dweight_parts = output_mask[1] ? parts.data_ptr<float>() : nullptr,
       .rows = rows,
       .width = width,
       .residual = residual.defined() ? residual.const_data_ptr() : nullptr,
       .offset = static_cast<float>(offset)});
  return {dx, output_mask[1] ? parts.sum(0) : parts};
}

// Returns the elements from one token of x [batch, seq, heads, d] to the next, if all have the same
// distance and a token's elements have no gaps; 0 otherwise.
int64_t token_stride(const Tensor& x) {
  const bool one = x.stride(3) == 1 && (x.size(2) == 1 || x.stride(2) == x.size(3)) &&
                   (x.size(0) == 1 || x.stride(0) == x.size(1) * x.stride(1));
  return one && x.size(1) > 1 ? x.stride(1) : 0;
}

bool is_vectorizable(const Tensor& x, int64_t stride) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 && stride % vector_size(x) == 0;
}

Tensor apply_rope_cuda(const Tensor& any_x, const Tensor& cos, const Tensor& sin,
                       double direction) {
  const int64_t stride = token_stride(any_x);
  const bool in_place = stride != 0 && is_vectorizable(any_x, stride);
  const Tensor x = in_place ? any_x : any_x.contiguous();
  const int64_t half = x.size(-1) / 2;
  const bool fits = element_type(x) && x.numel() > 0 && x.size(-1) % 2 == 0 &&
                    half % vector_size(x) == 0 && (in_place || aligned(x)) && aligned(cos) &&
                    aligned(sin) && cos.scalar_type() == x.scalar_type() &&
                    sin.scalar_type() == x.scalar_type();
  if (!fits) return formula::apply_rope(x, cos, sin, direction);
  Tensor y = at::empty(x.sizes(), x.options());
  run(rotate, x,
      {.x = x.const_data_ptr(),
       .cos = cos.const_data_ptr(),
       .sin = sin.const_data_ptr(),
       .y = y.data_ptr(),
       .batch = x.size(0),
       .seq = x.size(1),
       .heads = x.size(2),
       .half = half,
       .token_stride = in_place ? stride : x.size(2) * x.size(3),
       .table_batch_stride = cos.size(0) == 1 ? 0 : x.size(1) * half,
       .direction = static_cast<float>(direction)});
  return y;
}

// Returns gate and up as rows that a kernel supports; nullopt otherwise.
std::optional<StridedRows> gated_rows(const Tensor& gate, const Tensor& up) {
  if (!element_type(gate)) return std::nullopt;
  const auto rows = row_layout(gate);
  const bool fits = rows && rows->width % vector_size(gate) == 0 &&
                    gate.scalar_type() == up.scalar_type() && gate.sizes() == up.sizes() &&
                    gate.strides() == up.strides() && is_vectorizable(gate, rows->stride) &&
                    is_vectorizable(up, rows->stride);
  if (!fits) return std::nullopt;
  return StridedRows{rows->rows, rows->width, rows->stride};
}

Tensor gated_activation_cuda(const Tensor& any_gate, const Tensor& any_up, bool gelu_tanh) {
  Tensor gate = any_gate, up = any_up;
  auto rows = gated_rows(gate, up);
  if (!rows) rows = gated_rows(gate = gate.contiguous(), up = up.contiguous());
  if (!rows) return formula::gated_activation(gate, up, gelu_tanh);
  Tensor y = at::empty(gate.sizes(), gate.options());
  run(gated_activation, gate,
      {.gate = gate.const_data_ptr(),
       .up = up.const_data_ptr(),
       .y = y.data_ptr(),
       .inputs = *rows,
       .gelu_tanh = gelu_tanh});
  return y;
}

std::tuple<Tensor, Tensor> gated_activation_backward_cuda(const Tensor& any_dy,
                                                          const Tensor& any_gate,
                                                          const Tensor& any_up, bool gelu_tanh) {
  const Tensor dy = any_dy.contiguous();
  Tensor gate = any_gate, up = any_up;
  auto rows = gated_rows(gate, up);
  if (!rows) rows = gated_rows(gate = gate.contiguous(), up = up.contiguous());
  if (!rows || dy.sizes() != gate.sizes() || !aligned(dy) ||
      dy.scalar_type() != gate.scalar_type()) {
    return formula::gated_activation_backward(dy, gate, up, gelu_tanh);
  }
  const auto [dgate, dup] = empty_like_pair(gate, up);
  run(gated_activation_backward, gate,
      {.dy = dy.const_data_ptr(),
       .gate = gate.const_data_ptr(),
       .up = up.const_data_ptr(),
       .dgate = dgate.data_ptr(),
       .dup = dup.data_ptr(),
       .inputs = *rows,
       .gelu_tanh = gelu_tanh});
  return {dgate, dup};
}

bool add_rows_supports(const Tensor& table, const Tensor& rows, const Tensor& dy) {
  const bool kinds =
      element_type(table) && element_type(dy) &&
      (table.scalar_type() == dy.scalar_type() || table.scalar_type() == torch::kFloat);
  return kinds && table.dim() == 2 && dy.dim() == 2 && rows.dim() == 1 && dy.numel() > 0 &&
         table.is_contiguous();
}

void add_rows_cuda(Tensor table, const Tensor& rows, const Tensor& any_dy) {
  if (!add_rows_supports(table, rows, any_dy)) return formula::add_rows_(table, rows, any_dy);
  const c10::cuda::CUDAGuard guard(table.device());
  const Tensor dy = any_dy.contiguous();
  const auto [sorted, order] =
      at::sort(rows, std::optional<bool>(true), /*dim=*/0, /*descending=*/false);
  const Tensor parts =
      at::empty({add_rows_parts(dy.size(0)), dy.size(1)}, dy.options().dtype(torch::kFloat));
  add_rows(*element_type(table), *element_type(dy),
           {.table = table.data_ptr(),
            .dy = dy.const_data_ptr(),
            .rows = sorted.const_data_ptr<int64_t>(),
            .order = order.const_data_ptr<int64_t>(),
            .parts = parts.data_ptr<float>(),
            .count = dy.size(0),
            .width = dy.size(1)},
           stream_of(table));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// Returns whether logits are rows whose elements are adjacent.
bool is_2d(const Tensor& logits) {
  return element_type(logits) && logits.dim() == 2 && logits.numel() > 0 && logits.stride(1) == 1;
}

Tensor log_sum_exp_cuda(const Tensor& logits) {
  if (!is_2d(logits)) return formula::log_sum_exp(logits);
  Tensor lse = at::empty({logits.size(0)}, logits.options().dtype(torch::kFloat));
  run(log_sum_exp, logits,
      {.logits = logits.const_data_ptr(),
       .lse = lse.data_ptr<float>(),
       .rows = logits.size(0),
       .vocab = logits.size(1),
       .row_stride = logits.stride(0),
       .vectors = is_vectorizable(logits, logits.stride(0))});
  return lse;
}

void logit_gradient_cuda(Tensor logits, const Tensor& lse, const Tensor& targets,
                         const Tensor& scale) {
  if (!is_2d(logits) || !lse.is_contiguous() || !targets.is_contiguous()) {
    return formula::logit_gradient_(logits, lse, targets, scale);
  }
  run(logit_gradient, logits,
      {.logits = logits.data_ptr(),
       .lse = lse.const_data_ptr<float>(),
       .targets = targets.const_data_ptr<int64_t>(),
       .scale = scale.const_data_ptr<float>(),
       .rows = logits.size(0),
       .vocab = logits.size(1),
       .row_stride = logits.stride(0),
       .vectors = is_vectorizable(logits, logits.stride(0))});
}

void dequantize_nf4_cuda(const Tensor& out, const Tensor& codes, const Tensor& absmax,
                         const std::optional<Tensor>& nested_absmax, at::IntArrayRef place) {
  static const std::array<float, 256> absmax_map = dynamic_map(/*is_signed=*/true);
  const bool is_double = nested_absmax.has_value();
  const auto* const nested =
      is_double ? static_cast<const float*>(nested_absmax->const_data_ptr()) : nullptr;
  DequantizeNf4 call{
      .codes = codes.const_data_ptr<uint8_t>(),
      .absmax = absmax.const_data_ptr<uint8_t>(),
      .nested_absmax = nested,
      .mean = is_double ? nested + nested_absmax->numel() / sizeof(float) - 1 : nullptr,
      .out = out.data_ptr(),
      .count = out.numel(),
      .first_block = place[0],
      .blocks_per_row = place[1],
      .row_step = place[2],
      .block = kNf4Block,
      .blocks_per_group = kNestedBlock,
      .vectors = reinterpret_cast<uintptr_t>(out.const_data_ptr()) % 16 == 0,
      .numbers = {},
      .absmax_map = {}};
  std::ranges::copy(kNf4Values, call.numbers);
  std::ranges::copy(absmax_map, call.absmax_map);
  TORCH_CHECK(element_type(out), "weights in NF4 are dequantized to ", out.scalar_type());
  run(dequantize_nf4, out, call);
}

}  // namespace

TORCH_LIBRARY_IMPL(zeroth, CUDA, library) {
  library.impl("rms_norm", rms_norm_cuda);
  library.impl("add_rms_norm", add_rms_norm_cuda);
  library.impl("rms_norm_backward", rms_norm_backward_cuda);
  library.impl("apply_rope", apply_rope_cuda);
  library.impl("gated_activation", gated_activation_cuda);
  library.impl("gated_activation_backward", gated_activation_backward_cuda);
  library.impl("add_rows_", add_rows_cuda);
  library.impl("log_sum_exp", log_sum_exp_cuda);
  library.impl("logit_gradient_", logit_gradient_cuda);
  library.impl("dequantize_nf4", dequantize_nf4_cuda);
}

}  // namespace zeroth::model::gpu
