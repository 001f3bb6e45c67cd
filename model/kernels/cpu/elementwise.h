// Norm, rotation, gated activation and cross-entropy; see kernels.h. Included by kernels.cpp.
#pragma once

#include "model/kernels/cpu/vector.h"

namespace zeroth::model::cpu {
namespace {

template <typename T>
void rms_norm(const NormRows<T>& rows, double eps, T* y) {
  const int64_t n = rows.size;
  for (int64_t row = 0; row < rows.rows; ++row) {
    const T* x = rows.x + row * n;
    T* out = y + row * n;
    Vec squares[2] = {};
    int64_t turn = 0;
    for_each_vector(n, [&](const auto& at) {
      const Vec v = at.load(x);
      squares[turn] += v * v;
      turn ^= 1;
    });
    const float mean = sum(squares[0] + squares[1]) / static_cast<float>(n);
    const float scale = 1 / __builtin_sqrtf(mean + static_cast<float>(eps));
    rows.scale[row] = scale;
    for_each_vector(n, [&](const auto& at) {
      const Vec normalized = at.load(x) * scale;
      const Vec factor = rows.product_in_fp32 ? normalized : rounded(normalized, x);
      at.store(out, factor * (at.load(rows.weight) + rows.offset));
    });
  }
}

// Computes dx = scale * (w dy - x scale^2 mean(w dy x)); dw = sum over rows of dy x scale.
template <typename T>
void rms_norm_backward(const NormRows<T>& rows, const T* all_dy, T* all_dx, float* dweight) {
  const int64_t n = rows.size;
  for (int64_t row = 0; row < rows.rows; ++row) {
    const T *x = rows.x + row * n, *dy = all_dy + row * n;
    const float scale = rows.scale[row];
    Vec dots = {};
    for_each_vector(n, [&](const auto& at) {
      const Vec old = dweight ? at.load(dweight) : Vec{};
      const Vec g = at.load(dy), v = at.load(x);
      dots += g * v * (at.load(rows.weight) + rows.offset);
      if (dweight) at.store(dweight, old + g * v * scale);
    });
    if (!all_dx) continue;
    T* dx = all_dx + row * n;
    const float along = sum(dots) / static_cast<float>(n) * scale * scale * scale;
    for_each_vector(n, [&](const auto& at) {
      at.store(dx, at.load(dy) * (at.load(rows.weight) + rows.offset) * scale - at.load(x) * along);
    });
  }
}

template <typename T>
void rotate(const HeadPairs<T>& pairs, float direction) {
  const int64_t half = pairs.half;
  for (int64_t line = 0; line < pairs.lines; ++line) {
    const T *x = pairs.x + line * 2 * half, *x2 = x + half;
    T *y = pairs.y + line * 2 * half, *y2 = y + half;
    for_each_vector(half, [&](const auto& at) {
      const Vec a = at.load(x), b = at.load(x2);
      const Vec cos = at.load(pairs.cos), sin = at.load(pairs.sin) * direction;
      at.store(y, a * cos - b * sin);
      at.store(y2, b * cos + a * sin);
    });
  }
}

// The activation of a gate is gate * sigmoid, its derivative sigmoid * slope.
struct GateTerms {
  Vec gate, sigmoid, slope;
};

ZEROTH_INLINE GateTerms silu(Vec gate) {
  const Vec s = 1.0F / (1.0F + exponential(-gate));
  return {gate, s, 1.0F + gate * (1.0F - s)};
}

// Computes the sigmoid of gate * (a + b gate^2), which is the tanh formula of GELU. From 10 on it
// is 1 in fp32, and below -10 less than 1e-37: a larger gate would overflow in the slope alone.
ZEROTH_INLINE GateTerms gelu_tanh(Vec gate) {
  constexpr float kA = 1.5957691216F, kB = 0.044715F * kA;  // kA = 2 sqrt(2 / pi)
  const Vec low = spread(-10.0F), high = spread(10.0F);
  const Vec above = gate < low ? low : gate;
  const Vec x = above > high ? high : above, square = x * x;
  const Vec e = exponential(-x * (kA + kB * square)), s = 1.0F / (1.0F + e);
  return {above, s, 1.0F + x * (e * s) * (kA + 3 * kB * square)};
}

template <auto* kTerms, typename T>
void gated_activation(const T* gate, const T* up, T* y, int64_t size) {
  for_each_vector(size, [&](const auto& at) {
    const GateTerms terms = kTerms(at.load(gate));
    at.store(y, rounded(terms.gate * terms.sigmoid, gate) * at.load(up));
  });
}

template <auto* kTerms, typename T>
void gated_activation_backward(const T* dy, const T* gate, const T* up, T* dgate, T* dup,
                               int64_t size) {
  for_each_vector(size, [&](const auto& at) {
    const Vec d = at.load(dy);
    const GateTerms terms = kTerms(at.load(gate));
    at.store(dgate, rounded(d * at.load(up), gate) * terms.sigmoid * terms.slope);
    at.store(dup, rounded(terms.gate * terms.sigmoid, gate) * d);
  });
}

template <typename T>
float log_sum_exp(const T* x, int64_t size) {
  const float lowest = -__builtin_inff();  // zeros after the end would count
  Vec maximum = spread(lowest);
  for_each_vector(size,
                  [&](const auto& at) { maximum = lane_max(at.load_or(x, lowest), maximum); });
  const float top = horizontal_max(maximum);
  Vec total = {};
  for_each_vector(size, [&](const auto& at) { total += exponential(at.load_or(x, lowest) - top); });
  return top + __builtin_logf(sum(total));
}

template <typename T>
void logit_gradient(T* x, int64_t size, float lse, int64_t target, float scale) {
  const int64_t start = target < 0 ? -1 : target / kLanes * kLanes;
  for_each_vector(size, [&](const auto& at) {
    Vec p = exponential(at.load(x) - lse);
    if (at.index == start) p[target - start] -= 1;
    at.store(x, p * scale);
  });
}

}  // namespace
}  // namespace zeroth::model::cpu
