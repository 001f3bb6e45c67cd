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
    const auto square = [&](Vec v) {
      squares[turn] += v * v;
      turn ^= 1;
    };
    for_each_vector(
        n, [&](int64_t i) { square(load(x + i)); },
        [&](int64_t i, int64_t count) { square(load_partial(x + i, count)); });
    const float mean = sum(squares[0] + squares[1]) / static_cast<float>(n);
    const float scale = 1 / __builtin_sqrtf(mean + static_cast<float>(eps));
    rows.scale[row] = scale;
    const auto scaled = [&](Vec v, Vec weight) { return rounded(v * scale, x) * weight; };
    for_each_vector(
        n, [&](int64_t i) { store(out + i, scaled(load(x + i), load(rows.weight + i))); },
        [&](int64_t i, int64_t count) {
          store_partial(out + i,
                        scaled(load_partial(x + i, count), load_partial(rows.weight + i, count)),
                        count);
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
    const auto first = [&](Vec g, Vec v, Vec weight, Vec more) {
      dots += g * v * weight;
      return more + g * v * scale;
    };
    for_each_vector(
        n,
        [&](int64_t i) {
          const Vec old = dweight ? load(dweight + i) : Vec{};
          const Vec next = first(load(dy + i), load(x + i), load(rows.weight + i), old);
          if (dweight) store(dweight + i, next);
        },
        [&](int64_t i, int64_t count) {
          const Vec old = dweight ? load_partial(dweight + i, count) : Vec{};
          const Vec next = first(load_partial(dy + i, count), load_partial(x + i, count),
                                 load_partial(rows.weight + i, count), old);
          if (dweight) store_partial(dweight + i, next, count);
        });
    if (!all_dx) continue;
    T* dx = all_dx + row * n;
    const float along = sum(dots) / static_cast<float>(n) * scale * scale * scale;
    const auto second = [&](Vec g, Vec v, Vec weight) { return g * weight * scale - v * along; };
    for_each_vector(
        n,
        [&](int64_t i) { store(dx + i, second(load(dy + i), load(x + i), load(rows.weight + i))); },
        [&](int64_t i, int64_t count) {
          store_partial(dx + i,
                        second(load_partial(dy + i, count), load_partial(x + i, count),
                               load_partial(rows.weight + i, count)),
                        count);
        });
  }
}

template <typename T>
void rotate(const HeadPairs<T>& pairs, float direction) {
  const int64_t half = pairs.half;
  for (int64_t line = 0; line < pairs.lines; ++line) {
    const T *x = pairs.x + line * 2 * half, *x2 = x + half;
    T *y = pairs.y + line * 2 * half, *y2 = y + half;
    for_each_vector(
        half,
        [&](int64_t i) {
          const Vec a = load(x + i), b = load(x2 + i);
          const Vec cos = load(pairs.cos + i), sin = load(pairs.sin + i) * direction;
          store(y + i, a * cos - b * sin);
          store(y2 + i, b * cos + a * sin);
        },
        [&](int64_t i, int64_t count) {
          const Vec a = load_partial(x + i, count), b = load_partial(x2 + i, count);
          const Vec cos = load_partial(pairs.cos + i, count);
          const Vec sin = load_partial(pairs.sin + i, count) * direction;
          store_partial(y + i, a * cos - b * sin, count);
          store_partial(y2 + i, b * cos + a * sin, count);
        });
  }
}

inline Vec sigmoid(Vec x) {
  return 1.0F / (1.0F + exponential(-x));
}

template <typename T>
void swiglu(const T* gate, const T* up, T* y, int64_t size) {
  const auto value = [&](Vec g, Vec u) { return rounded(g * sigmoid(g), gate) * u; };
  for_each_vector(
      size, [&](int64_t i) { store(y + i, value(load(gate + i), load(up + i))); },
      [&](int64_t i, int64_t count) {
        store_partial(y + i, value(load_partial(gate + i, count), load_partial(up + i, count)),
                      count);
      });
}

template <typename T>
void swiglu_backward(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t size) {
  struct Both {
    Vec dgate, dup;
  };
  const auto value = [&](Vec d, Vec g, Vec u) {
    const Vec s = sigmoid(g);
    return Both{rounded(d * u, gate) * s * (1.0F + g * (1.0F - s)), rounded(g * s, gate) * d};
  };
  for_each_vector(
      size,
      [&](int64_t i) {
        const Both both = value(load(dy + i), load(gate + i), load(up + i));
        store(dgate + i, both.dgate);
        store(dup + i, both.dup);
      },
      [&](int64_t i, int64_t count) {
        const Both both = value(load_partial(dy + i, count), load_partial(gate + i, count),
                                load_partial(up + i, count));
        store_partial(dgate + i, both.dgate, count);
        store_partial(dup + i, both.dup, count);
      });
}

template <typename T>
float log_sum_exp(const LogitRow<T>& row) {
  const T* x = row.logits;
  Vec maximum = spread(-__builtin_inff());
  const auto padded = [&](int64_t i, int64_t count) {  // zeros after the end would count
    float part[kLanes];
    store(part, load_partial(x + i, count));
    for (int64_t lane = count; lane < kLanes; ++lane) part[lane] = -__builtin_inff();
    return load(part);
  };
  for_each_vector(
      row.size, [&](int64_t i) { maximum = lane_max(load(x + i), maximum); },
      [&](int64_t i, int64_t count) { maximum = lane_max(padded(i, count), maximum); });
  const float top = horizontal_max(maximum);
  Vec total = {};
  for_each_vector(
      row.size, [&](int64_t i) { total += exponential(load(x + i) - top); },
      [&](int64_t i, int64_t count) { total += exponential(padded(i, count) - top); });
  return top + __builtin_logf(sum(total));
}

template <typename T>
void logit_gradient(const LogitRow<T>& row, float lse, int64_t target, float scale) {
  T* x = row.logits;
  const int64_t start = target < 0 ? -1 : target / kLanes * kLanes;
  const auto value = [&](int64_t i, Vec v) {
    Vec p = exponential(v - lse);
    if (i == start) p[target - start] -= 1;
    return p * scale;
  };
  for_each_vector(
      row.size, [&](int64_t i) { store(x + i, value(i, load(x + i))); },
      [&](int64_t i, int64_t count) {
        store_partial(x + i, value(i, load_partial(x + i, count)), count);
      });
}

}  // namespace
}  // namespace zeroth::model::cpu
