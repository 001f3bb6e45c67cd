#include <ATen/ops/add.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

#include "base/machine/parallel.h"
#include "model/kernels/cpu/select.h"
#include "model/kernels/fused_formula.h"

namespace zeroth::model::cpu {
namespace {

using torch::Tensor;

// Number of elements below which a separate thread does not pay.
constexpr int64_t kGrain = 1 << 15;

int64_t grain_rows(int64_t size) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(size, 1));
}

bool same_dtype(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == b.scalar_type();
}

// Rows of a norm whose gradients are summed together: partial sums of the weight's gradient do not
// depend on the number of threads.
constexpr int64_t kSummedRows = 256;

// Adds to a row [width] of the table the sum of dy at these positions.
template <typename T>
void add_to_row(T* row, std::span<const int64_t> positions, const T* dy, int64_t width) {
  std::vector<float> sum(row, row + width);
  for (const int64_t position : positions) {
    const T* const more = dy + position * width;
    for (int64_t i = 0; i < width; ++i) sum[static_cast<size_t>(i)] += static_cast<float>(more[i]);
  }
  std::transform(sum.begin(), sum.end(), row, [](float x) { return static_cast<T>(x); });
}

template <typename T>
void add_rows(const Tensor& table, const Tensor& rows, const Tensor& dy) {
  const int64_t width = table.size(1);
  const int64_t* const row = rows.const_data_ptr<int64_t>();
  // The positions that add to each row, row by row, in their order.
  std::vector<int64_t> positions(static_cast<size_t>(rows.numel()));
  std::iota(positions.begin(), positions.end(), int64_t{0});
  std::ranges::stable_sort(positions, {}, [row](int64_t position) { return row[position]; });
  std::vector<size_t> starts;  // starts of runs of one row
  for (size_t i = 0; i < positions.size(); ++i) {
    if (i == 0 || row[positions[i]] != row[positions[i - 1]]) starts.push_back(i);
  }
  starts.push_back(positions.size());
  parallel_for(std::ssize(starts) - 1, grain_rows(width), [&](int64_t begin, int64_t end) {
    for (auto run = static_cast<size_t>(begin); run < static_cast<size_t>(end); ++run) {
      const auto row_positions =
          std::span(positions).subspan(starts[run], starts[run + 1] - starts[run]);
      add_to_row(table.data_ptr<T>() + row[row_positions.front()] * width, row_positions,
                 dy.const_data_ptr<T>(), width);
    }
  });
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const Tensor& weight, double eps,
                                    double offset, bool product_in_fp32) {
  const Tensor flat = x.contiguous();
  const int64_t size = weight.size(0), rows = flat.numel() / size;
  Tensor y, scale;
  const bool done =
      same_dtype(x, weight) && with_kernels(x.scalar_type(), [&](const auto& kernels, auto t) {
        using T = decltype(t);
        y = at::empty_like(flat);
        scale = at::empty({rows}, x.options().dtype(torch::kFloat));
        const Tensor w = weight.contiguous();
        parallel_for(rows, grain_rows(size), [&](int64_t begin, int64_t end) {
          const int64_t at = begin * size;
          kernels.rms_norm({data<T>(flat) + at, data<T>(w), data<float>(scale) + begin, end - begin,
                            size, static_cast<float>(offset), product_in_fp32},
                           eps, data<T>(y) + at);
        });
      });
  if (!done) return formula::rms_norm(x, weight, eps, offset, product_in_fp32);
  return {y, scale};
}

std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& addend,
                                                const Tensor& weight, double eps, double offset,
                                                bool product_in_fp32) {
  const Tensor sum = at::add(x, addend);
  const auto [y, scale] = rms_norm(sum, weight, eps, offset, product_in_fp32);
  return {sum, y, scale};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& dy, at::TensorList saved,
                                             const std::optional<Tensor>& residual,
                                             std::array<bool, 2> output_mask, double offset) {
  const Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
  Tensor dx = at::empty({0}, x.options()), dweight = at::empty({0}, scale.options());
  const bool fits = same_dtype(x, weight) && same_dtype(x, dy);
  const bool done =
      fits && with_kernels(x.scalar_type(), [&](const auto& kernels, auto t) {
        using T = decltype(t);
        const Tensor flat = x.contiguous(), flat_dy = dy.contiguous(), w = weight.contiguous();
        const int64_t size = weight.size(0), rows = flat.numel() / size;
        const int64_t parts = (rows + kSummedRows - 1) / kSummedRows;
        if (output_mask[0]) dx = at::empty_like(flat);
        Tensor sums;
        if (output_mask[1]) sums = at::zeros({parts, size}, scale.options());
        parallel_for(parts, 1, [&](int64_t first, int64_t last) {
          for (int64_t part = first; part < last; ++part) {
            const int64_t begin = part * kSummedRows, count = std::min(kSummedRows, rows - begin);
            const int64_t at = begin * size;
            kernels.rms_norm_backward({data<T>(flat) + at, data<T>(w), data<float>(scale) + begin,
                                       count, size, static_cast<float>(offset)},
                                      data<T>(flat_dy) + at,
                                      output_mask[0] ? data<T>(dx) + at : nullptr,
                                      output_mask[1] ? data<float>(sums) + part * size : nullptr);
          }
        });
        if (output_mask[1]) dweight = parts == 1 ? sums[0] : sums.sum(0);
      });
  if (!done) {
    return formula::rms_norm_backward(dy, saved, residual, output_mask, offset);
  }
  if (output_mask[0] && residual) dx.add_(*residual);
  return {dx, dweight};
}

Tensor apply_rope(const Tensor& x, const Tensor& cos, const Tensor& sin, double direction) {
  const int64_t batch = x.size(0), seq = x.size(1), heads = x.size(2), half = x.size(3) / 2;
  Tensor y;
  const bool fits = same_dtype(x, cos) && cos.is_contiguous() && sin.is_contiguous();
  const bool done =
      fits && with_kernels(x.scalar_type(), [&](const auto& kernels, auto t) {
        using T = decltype(t);
        const Tensor flat = x.contiguous();
        y = at::empty_like(flat);
        const int64_t line = heads * 2 * half, angles = cos.size(0) == 1 ? seq : batch * seq;
        parallel_for(batch * seq, grain_rows(line), [&](int64_t begin, int64_t end) {
          for (int64_t token = begin; token < end; ++token) {
            const int64_t angle = token % angles * half;
            kernels.rotate({data<T>(flat) + token * line, data<T>(cos) + angle,
                            data<T>(sin) + angle, data<T>(y) + token * line, heads, half},
                           static_cast<float>(direction));
          }
        });
      });
  return done ? y : formula::apply_rope(x, cos, sin, direction);
}

// Returns the rows of gate and up, which have one layout; nullopt if the loops do not support it.
std::optional<RowLayout> gated_rows(const Tensor& gate, const Tensor& up) {
  const bool fits =
      same_dtype(gate, up) && gate.sizes() == up.sizes() && gate.strides() == up.strides();
  return fits ? row_layout(gate) : std::nullopt;
}

// Calls loop(first element of gate and up, first element of y, elements) for parts of all rows,
// where y has no gaps.
template <typename Loop>
void for_each_row_part(const RowLayout& rows, const Loop& loop) {
  if (rows.rows == 1) {
    return parallel_for(rows.width, kGrain,
                        [&](int64_t begin, int64_t end) { loop(begin, begin, end - begin); });
  }
  parallel_for(rows.rows, grain_rows(rows.width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      loop(row * rows.stride, row * rows.width, rows.width);
  });
}

Tensor gated_activation(const Tensor& gate, const Tensor& up, bool gelu_tanh) {
  Tensor y;
  const auto rows = gated_rows(gate, up);
  const bool done = rows && with_kernels(gate.scalar_type(), [&](const auto& kernels, auto t) {
                      using T = decltype(t);
                      y = at::empty(gate.sizes(), gate.options());
                      for_each_row_part(*rows, [&](int64_t at, int64_t to, int64_t count) {
                        kernels.gated_activation[gelu_tanh](data<T>(gate) + at, data<T>(up) + at,
                                                            data<T>(y) + to, count);
                      });
                    });
  return done ? y : formula::gated_activation(gate, up, gelu_tanh);
}

std::tuple<Tensor, Tensor> gated_activation_backward(const Tensor& dy, const Tensor& gate,
                                                     const Tensor& up, bool gelu_tanh) {
  std::pair<Tensor, Tensor> gradients;
  const auto rows = gated_rows(gate, up);
  const bool fits = rows && same_dtype(gate, dy) && dy.is_contiguous();
  const bool done = fits && with_kernels(gate.scalar_type(), [&](const auto& kernels, auto t) {
                      using T = decltype(t);
                      gradients = empty_like_pair(gate, up);
                      for_each_row_part(*rows, [&](int64_t at, int64_t from, int64_t count) {
                        kernels.gated_activation_backward[gelu_tanh](
                            data<T>(dy) + from, data<T>(gate) + at, data<T>(up) + at,
                            data<T>(gradients.first) + at, data<T>(gradients.second) + at, count);
                      });
                    });
  if (!done) return formula::gated_activation_backward(dy, gate, up, gelu_tanh);
  return gradients;
}

void add_rows_(Tensor table, const Tensor& rows, const Tensor& dy) {
  const bool fits =
      same_dtype(table, dy) && table.is_contiguous() && rows.is_contiguous() && dy.is_contiguous();
  if (fits && table.scalar_type() == torch::kBFloat16)
    return add_rows<c10::BFloat16>(table, rows, dy);
  if (fits && table.scalar_type() == torch::kHalf) return add_rows<c10::Half>(table, rows, dy);
  formula::add_rows_(table, rows, dy);
}

Tensor log_sum_exp(const Tensor& logits) {
  const int64_t rows = logits.size(0), size = logits.size(1);
  Tensor lse;
  const bool done = logits.is_contiguous() &&
                    with_kernels(logits.scalar_type(), [&](const auto& kernels, auto t) {
                      using T = decltype(t);
                      lse = at::empty({rows}, logits.options().dtype(torch::kFloat));
                      parallel_for(rows, grain_rows(size), [&](int64_t begin, int64_t end) {
                        for (int64_t row = begin; row < end; ++row) {
                          data<float>(lse)[row] =
                              kernels.log_sum_exp(data<T>(logits) + row * size, size);
                        }
                      });
                    });
  return done ? lse : formula::log_sum_exp(logits);
}

void logit_gradient_(Tensor logits, const Tensor& lse, const Tensor& targets, const Tensor& scale) {
  const int64_t size = logits.size(1);
  const bool fits = logits.is_contiguous() && targets.is_contiguous();
  const bool done =
      fits && with_kernels(logits.scalar_type(), [&](const auto& kernels, auto t) {
        using T = decltype(t);
        const auto factor = scale.item<float>();
        const int64_t* const target = targets.data_ptr<int64_t>();
        parallel_for(logits.size(0), grain_rows(size), [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            kernels.logit_gradient(data<T>(logits) + row * size, size, data<float>(lse)[row],
                                   target[row], factor);
          }
        });
      });
  if (!done) formula::logit_gradient_(logits, lse, targets, scale);
}

}  // namespace

void register_operators(torch::Library& library) {
  library.impl("rms_norm", rms_norm);
  library.impl("add_rms_norm", add_rms_norm);
  library.impl("rms_norm_backward", rms_norm_backward);
  library.impl("apply_rope", apply_rope);
  library.impl("gated_activation", gated_activation);
  library.impl("gated_activation_backward", gated_activation_backward);
  library.impl("add_rows_", add_rows_);
  library.impl("log_sum_exp", log_sum_exp);
  library.impl("logit_gradient_", logit_gradient_);
}

}  // namespace zeroth::model::cpu
