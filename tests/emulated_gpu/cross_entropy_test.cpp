// The kernels of the head's loss beside their formulas.
#include <doctest/doctest.h>

#include "model/kernels/gpu/fused.h"
#include "tests/emulated_gpu/emulation.h"
#include "tests/emulated_gpu/shapes.h"

namespace zeroth::emulated::cross_entropy_test {
namespace {

using model::gpu::ElementType;

constexpr int64_t kFar = int64_t{1} << 31;

// Rows of logits, far from each other or very many where their elements go beyond 2^31.
template <typename T>
struct Logits {
  T* at;
  int64_t rows, vocab, stride;
  bool vectors;
  std::vector<int64_t> taken;
  std::vector<uint64_t> blocks;  // empty: all

  T* row(int64_t i) const { return at + i * stride; }
  // The last elements between two rows belong to none.
  int64_t count() const { return (rows - 1) * stride + vocab; }
};

template <typename T>
Logits<T> drawn(Shape& shape) {
  constexpr int64_t kVector = 16 / sizeof(T);
  Logits<T> logits;
  logits.vocab = shape.one_in(4) ? shape.from_to(1, 40) : shape.from_to(1, 2500);
  logits.rows = shape.from_to(1, 3);
  logits.vectors = shape.one_in(2);
  logits.stride = logits.vocab + (shape.one_in(2) ? 0 : shape.from_to(0, 70));
  if (shape.is_far()) {
    if (shape.one_in(2)) {
      logits.stride = kFar + shape.from_to(0, 1000);
    } else {
      logits.rows = kFar / logits.stride + shape.from_to(2, 9);
      for (const int64_t row : {int64_t{0}, logits.rows / 2, logits.rows - 1}) {
        logits.taken.push_back(row);
        logits.blocks.push_back(static_cast<uint64_t>(row));
      }
    }
  }
  if (logits.vectors) logits.stride = (logits.stride + kVector - 1) / kVector * kVector;
  if (logits.blocks.empty()) {
    for (int64_t i = 0; i < logits.rows; ++i) logits.taken.push_back(i);
  }
  const int64_t offset = shape.offset(logits.vectors ? 16 : sizeof(T));
  logits.at = shape.is_far() ? shape.memory.far_array<T>(logits.count())
                             : shape.memory.array<T>(logits.count(), offset);
  const double spread = shape.one_in(3) ? 30 : 3;
  const T masked = narrowed<T>(-INFINITY);
  for (const int64_t i : logits.taken) {
    T* const row = logits.row(i);
    shape.fill(row, logits.vocab);
    for (int64_t k = 0; k < logits.vocab; k += shape.from_to(1, 40)) {
      row[k] = narrowed<T>(rounded<T>(wide(row[k]) * spread));
    }
    if (shape.one_in(8)) row[0] = masked;
    if (shape.one_in(16)) std::fill(row, row + shape.from_to(1, logits.vocab), masked);
    if (shape.one_in(12)) shape.put_special(row, logits.vocab);
  }
  shape.text = std::to_string(logits.rows) + " rows of " + std::to_string(logits.vocab) + ", " +
               std::to_string(logits.stride) + " apart" + (logits.vectors ? ", in vectors" : "");
  return logits;
}

template <typename T>
double log_of_sum(const T* row, int64_t vocab, double* range) {
  double maximum = -INFINITY, minimum = INFINITY;
  for (int64_t i = 0; i < vocab; ++i) {
    const double x = wide(row[i]);
    if (std::isnan(x)) return x;
    maximum = std::max(maximum, x);
    if (x != -INFINITY) minimum = std::min(minimum, x);
  }
  if (maximum == -INFINITY || maximum == INFINITY) return maximum;
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(wide(row[i]) - maximum);
  *range = maximum - minimum;
  return maximum + std::log(sum);
}

template <typename T>
void sum_logits(Shape& shape, ElementType kind) {
  const Logits<T> logits = drawn<T>(shape);
  float* const lse = logits.blocks.empty() ? shape.memory.array<float>(logits.rows)
                                           : shape.memory.far_array<float>(logits.rows);
  shape.run(
      [&] {
        log_sum_exp(kind,
                    {logits.at, lse, logits.rows, logits.vocab, logits.stride, logits.vectors},
                    nullptr);
      },
      {bytes_of(lse, logits.blocks.empty() ? logits.rows : 0)}, logits.blocks);
  for (const int64_t row : logits.taken) {
    double range = 0;
    const double expected = log_of_sum(logits.row(row), logits.vocab, &range);
    if (expected == INFINITY && std::isnan(lse[row])) continue;  // infinity less infinity
    const double terms = static_cast<double>(logits.vocab) / 512 + 64 + 4 * range;
    shape.expect("lse", row, lse[row], expected, (terms + 2 * std::abs(expected)) * kFloatStep);
  }
}

template <typename T>
void turn_into_gradient(Shape& shape, ElementType kind) {
  const Logits<T> logits = drawn<T>(shape);
  const bool few = logits.blocks.empty();
  float* const lse =
      few ? shape.memory.array<float>(logits.rows) : shape.memory.far_array<float>(logits.rows);
  int64_t* const targets =
      few ? shape.memory.array<int64_t>(logits.rows) : shape.memory.far_array<int64_t>(logits.rows);
  float* const scale = shape.memory.array<float>(1);
  *scale = static_cast<float>(usual_value(shape));
  std::vector<std::vector<T>> before;
  for (const int64_t row : logits.taken) {
    double range = 0;
    const T* const from = logits.row(row);
    lse[row] = static_cast<float>(log_of_sum(from, logits.vocab, &range));
    targets[row] = shape.one_in(6) ? -100 : shape.from_to(0, logits.vocab - 1);  // none
    before.emplace_back(from, from + logits.vocab);
  }
  shape.run(
      [&] {
        logit_gradient(kind,
                       {logits.at, lse, targets, scale, logits.rows, logits.vocab, logits.stride,
                        logits.vectors},
                       nullptr);
      },
      {bytes_of(logits.at, shape.is_far() ? 0 : logits.count())}, logits.blocks);
  for (size_t k = 0; k < logits.taken.size(); ++k) {
    const int64_t row = logits.taken[k];
    const T* const got = logits.row(row);
    for (int64_t i = 0; i < logits.vocab; ++i) {
      const double below = wide(before[k][static_cast<size_t>(i)]) - double{lse[row]};
      const double share = std::exp(below), one = targets[row] == i ? 1 : 0;
      const double off = below == -INFINITY ? 0 : share * (8 + 2 * std::abs(below));
      const double expected = (share - one) * double{*scale};
      const double slack = (off + 2 * one) * std::abs(double{*scale}) + 2 * std::abs(expected);
      shape.expect("gradient", row * logits.stride + i, got[i], expected,
                   slack * kFloatStep + std::abs(double{*scale}) * 0x1p-120);
    }
    if (shape.is_far() || row + 1 == logits.rows) continue;
    for (int64_t i = logits.vocab; i < logits.stride; ++i) {  // NaN, and none of them written
      const auto bytes = bytes_of(logits.row(row) + i, 1);
      if (bytes[0] != std::byte{0xff}) throw Failure(shape.text + ": writes between two rows");
    }
  }
}

}  // namespace

TEST_CASE("log_sum_exp_kernel gives the logarithm of each row's sum of exponentials") {
  run_shapes(
      {{"fp32", [](Shape& shape) { sum_logits<float>(shape, ElementType::kFloat); }},
       {"bf16", [](Shape& shape) { sum_logits<__nv_bfloat16>(shape, ElementType::kBfloat16); }},
       {"fp16", [](Shape& shape) { sum_logits<__half>(shape, ElementType::kHalf); }}},
      {"log_sum_exp_kernel"});
}

TEST_CASE("logit_gradient_kernel gives each logit's share, less one at the target") {
  run_shapes(
      {{"fp32", [](Shape& shape) { turn_into_gradient<float>(shape, ElementType::kFloat); }},
       {"bf16",
        [](Shape& shape) { turn_into_gradient<__nv_bfloat16>(shape, ElementType::kBfloat16); }},
       {"fp16", [](Shape& shape) { turn_into_gradient<__half>(shape, ElementType::kHalf); }}},
      {"logit_gradient_kernel"});
}

}  // namespace zeroth::emulated::cross_entropy_test
