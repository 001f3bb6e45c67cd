// The kernels of rotation and gated activation beside their formulas.
#include <doctest/doctest.h>

#include "model/kernels/gpu/fused.h"
#include "tests/emulated_gpu/emulation.h"
#include "tests/emulated_gpu/shapes.h"

namespace zeroth::emulated::elementwise_test {
namespace {

using model::gpu::ElementType;

constexpr int64_t kFar = int64_t{1} << 31;
constexpr int64_t kThreads = 256;  // of a block, each with one vector

// The elements that a few blocks take, in ranges of whole vectors; all where there are not many.
struct Ranges {
  std::vector<std::pair<int64_t, int64_t>> of;
  std::vector<uint64_t> blocks;
};

Ranges ranges(Shape& shape, int64_t count, int64_t of_block) {
  if (!shape.is_far()) return {{{0, count}}, {}};
  Ranges some;
  const int64_t last = (count - 1) / of_block;
  for (const int64_t block : {int64_t{0}, (kFar - 1) / of_block, kFar / of_block + 1, last}) {
    if (std::ranges::count(some.blocks, static_cast<uint64_t>(block)) != 0) continue;
    some.blocks.push_back(static_cast<uint64_t>(block));
    some.of.emplace_back(block * of_block, std::min((block + 1) * of_block, count));
  }
  return some;
}

template <typename T>
T* array(Shape& shape, int64_t count) {
  return shape.is_far() ? shape.memory.far_array<T>(count)
                        : shape.memory.array<T>(count, shape.offset(16));
}

template <typename T>
T* filled(Shape& shape, const Ranges& some, int64_t count) {
  T* const to = array<T>(shape, count);
  for (const auto& [begin, end] : some.of) {
    shape.fill(to + begin, end - begin);
    if (shape.one_in(8)) shape.put_special(to + begin, end - begin);
  }
  return to;
}

template <typename T>
void rotate(Shape& shape, ElementType kind) {
  constexpr int64_t kVector = 16 / sizeof(T);
  int64_t batch = shape.from_to(1, 3), seq = shape.from_to(1, 9), heads = shape.from_to(1, 5);
  const int64_t half = kVector * shape.from_to(1, 64 / kVector);
  if (shape.is_far()) {  // 16 samples, the last of which begin beyond 2^31
    batch = 17;
    seq = (int64_t{1} << 28) / (heads * half);
  }
  const int64_t of_token = heads * 2 * half, count = batch * seq * of_token, table = seq * half;
  const int64_t gap = shape.one_in(2) ? kVector * shape.from_to(1, 9) : 0;  // between tokens of x
  const bool one_table = !shape.is_far() && shape.one_in(2);
  shape.text = std::to_string(batch) + " x " + std::to_string(seq) + " x " + std::to_string(heads) +
               " x " + std::to_string(2 * half) + (one_table ? ", one table" : "");
  // A block takes vectors of first halves, whose second halves belong to it too.
  const Ranges some = ranges(shape, count, kThreads * kVector * 2);
  const int64_t spread = count + batch * seq * gap;
  T *const x = array<T>(shape, spread), *const y = array<T>(shape, count);
  const auto of_x = [&](int64_t i) { return i + i / of_token * gap; };
  const int64_t tables = one_table ? 1 : batch;
  T* const cos = array<T>(shape, tables * table);
  T* const sin = array<T>(shape, tables * table);
  const auto each = [&](auto&& take) {  // (of the first half, of the table)
    for (const auto& [begin, end] : some.of) {
      for (int64_t pair = begin / 2; pair < end / 2; ++pair) {
        const int64_t head = pair / half, at = pair % half;
        const int64_t position = head / heads % seq, sample = head / heads / seq;
        take(head * 2 * half + at, (one_table ? 0 : sample * table) + position * half + at);
      }
    }
  };
  if (shape.is_far()) {
    each([&](int64_t first, int64_t angle) {
      for (T* const value : {x + of_x(first), x + of_x(first + half), cos + angle, sin + angle}) {
        shape.fill(value, 1);
      }
    });
  } else {
    for (T* const to : {cos, sin}) shape.fill(to, tables * table);
    shape.fill(x, spread);
    if (shape.one_in(8)) shape.put_special(x, spread);
  }
  const float direction = shape.one_in(2) ? 1.F : -1.F;
  shape.run(
      [&] {
        rotate(kind,
               {x, cos, sin, y, batch, seq, heads, half, of_token + gap, one_table ? 0 : table,
                direction},
               nullptr);
      },
      {bytes_of(y, shape.is_far() ? 0 : count)}, some.blocks);
  each([&](int64_t first, int64_t angle) {
    const double a = wide(x[of_x(first)]), b = wide(x[of_x(first + half)]);
    const double c = wide(cos[angle]), s = direction * wide(sin[angle]);
    const double slack = 4 * kFloatStep;
    shape.expect("y", first, y[first], a * c - b * s, slack * (std::abs(a * c) + std::abs(b * s)));
    shape.expect("y", first + half, y[first + half], b * c + a * s,
                 slack * (std::abs(b * c) + std::abs(a * s)));
  });
}

template <typename T>
int64_t vectors_of(Shape& shape) {
  constexpr int64_t kVector = 16 / sizeof(T);
  const int64_t vectors = shape.is_far()    ? kFar / kVector + shape.from_to(1, 4 * kThreads)
                          : shape.one_in(2) ? shape.from_to(1, 3 * kThreads)
                                            : kThreads * shape.from_to(1, 2);
  shape.text = std::to_string(vectors * kVector) + " elements";
  return vectors * kVector;
}

// A part of so many elements as rows with gaps, or without.
template <typename T>
model::gpu::StridedRows rows_of(Shape& shape, int64_t count) {
  constexpr int64_t kVector = 16 / sizeof(T);
  if (shape.one_in(2)) return {1, count, count};
  int64_t rows = shape.from_to(1, 9);
  while (count % (rows * kVector) != 0) --rows;
  const int64_t width = count / rows;
  return {rows, width, width + kVector * shape.from_to(1, 9)};
}

int64_t place(const model::gpu::StridedRows& rows, int64_t i) {
  return i + i / rows.width * (rows.stride - rows.width);
}

// The elements of these ranges, in memory with gaps; the smallest ones around them.
Ranges placed(const Ranges& some, const model::gpu::StridedRows& rows) {
  Ranges in_memory;
  for (const auto& [begin, end] : some.of)
    in_memory.of.emplace_back(place(rows, begin), place(rows, end - 1) + 1);
  return in_memory;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// How much the fast exponential may be off, relatively, with what follows it.
double slack_at(double x) {
  return (12 + 2 * std::abs(x)) * kFloatStep;
}

// Not all gates about 1: those far out have sigmoids about 0 and 1.
template <typename T>
T* gates(Shape& shape, const Ranges& some, int64_t count) {
  T* const gate = filled<T>(shape, some, count);
  for (const auto& [begin, end] : some.of) {
    for (int64_t k = 0; k < 4; ++k) {
      gate[shape.from_to(begin, end - 1)] = narrowed<T>(rounded<T>(240 * (shape.uniform() - 0.5)));
    }
  }
  return gate;
}

// An activation gate * s, where s is a sigmoid, and its derivative s * slope.
struct Gate {
  double gate, s, slope, slack;  // how much s may be off, relatively
};

Gate gate_at(double g, bool gelu) {
  if (!gelu) return {g, sigmoid(g), 1 + g * sigmoid(-g), slack_at(g)};
  const double a = 2 * std::sqrt(2 / M_PI), b = 0.044715 * a;
  const double x = std::clamp(g, -10.0, 10.0), z = x * (a + b * x * x);  // s is 0 or 1 there
  // z is rounded five times: a or b, the square, its product with b, the sum, the product.
  const double slack = slack_at(z) + 5 * std::abs(z) * kFloatStep;
  return {std::max(g, -10.0), sigmoid(z), 1 + x * sigmoid(-z) * (a + 3 * b * x * x), slack};
}

// Whether this shape's activation is GELU.
bool draw_gelu(Shape& shape) {
  const bool gelu = shape.one_in(2);
  shape.text += gelu ? ", GELU" : ", SiLU";
  return gelu;
}

template <typename T>
void activate(Shape& shape, ElementType kind) {
  const int64_t count = vectors_of<T>(shape);
  const bool gelu = draw_gelu(shape);
  const Ranges some = ranges(shape, count, kThreads * 16 / static_cast<int64_t>(sizeof(T)));
  const auto rows = rows_of<T>(shape, count);
  const Ranges inputs = placed(some, rows);
  const int64_t spread = rows.rows * rows.stride;
  T *const gate = gates<T>(shape, inputs, spread), *const up = filled<T>(shape, inputs, spread);
  T* const y = array<T>(shape, count);
  shape.run(
      [&] {
        gated_activation(kind, {gate, up, y, rows, gelu}, nullptr);
      },
      {bytes_of(y, shape.is_far() ? 0 : count)}, some.blocks);
  for (const auto& [begin, end] : some.of) {
    for (int64_t i = begin; i < end; ++i) {
      const double g = wide(gate[place(rows, i)]), u = wide(up[place(rows, i)]);
      const Gate at = gate_at(g, gelu);
      const double expected = at.gate * at.s * u, underflow = std::abs(g * u) * 0x1p-120;
      shape.expect("y", i, y[i], expected, std::abs(expected) * at.slack + underflow);
    }
  }
}

template <typename T>
void activate_back(Shape& shape, ElementType kind) {
  const int64_t count = vectors_of<T>(shape);
  const bool gelu = draw_gelu(shape);
  const Ranges some = ranges(shape, count, kThreads * 16 / static_cast<int64_t>(sizeof(T)));
  const auto rows = rows_of<T>(shape, count);
  const Ranges inputs = placed(some, rows);
  const int64_t spread = rows.rows * rows.stride;
  T* const gate = gates<T>(shape, inputs, spread);
  T *const up = filled<T>(shape, inputs, spread), *const dy = filled<T>(shape, some, count);
  T *const dgate = array<T>(shape, spread), *const dup = array<T>(shape, spread);
  shape.run(
      [&] {
        gated_activation_backward(kind, {dy, gate, up, dgate, dup, rows, gelu}, nullptr);
      },
      {bytes_of(dgate, shape.is_far() ? 0 : spread), bytes_of(dup, shape.is_far() ? 0 : spread)},
      some.blocks);
  for (const auto& [begin, end] : some.of) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = place(rows, i);
      const double g = wide(gate[at]), u = wide(up[at]), d = wide(dy[i]);
      const Gate of = gate_at(g, gelu);
      const double size = std::abs(d * u) * (1 + std::abs(of.slope));
      const double min_slack = std::abs(d * u) * (1 + std::abs(g)) * 0x1p-120;
      shape.expect("dgate", i, dgate[at], d * u * of.s * of.slope,
                   size * 2 * of.s * of.slack + min_slack);
      const double expected = d * of.gate * of.s;
      const double underflow = std::abs(d * g) * 0x1p-120;
      shape.expect("dup", i, dup[at], expected, std::abs(expected) * of.slack + underflow);
    }
  }
}

}  // namespace

TEST_CASE("rope_kernel turns pairs by their position's angles") {
  run_shapes({{"fp32", [](Shape& shape) { rotate<float>(shape, ElementType::kFloat); }},
              {"bf16", [](Shape& shape) { rotate<__nv_bfloat16>(shape, ElementType::kBfloat16); }},
              {"fp16", [](Shape& shape) { rotate<__half>(shape, ElementType::kHalf); }}},
             {"rope_kernel"});
}

TEST_CASE("gated_activation_kernel gives silu(gate) * up and gelu(gate) * up") {
  run_shapes(
      {{"fp32", [](Shape& shape) { activate<float>(shape, ElementType::kFloat); }},
       {"bf16", [](Shape& shape) { activate<__nv_bfloat16>(shape, ElementType::kBfloat16); }},
       {"fp16", [](Shape& shape) { activate<__half>(shape, ElementType::kHalf); }}},
      {"gated_activation_kernel"});
}

TEST_CASE("gated_activation_backward_kernel gives both gradients of these products") {
  run_shapes(
      {{"fp32", [](Shape& shape) { activate_back<float>(shape, ElementType::kFloat); }},
       {"bf16", [](Shape& shape) { activate_back<__nv_bfloat16>(shape, ElementType::kBfloat16); }},
       {"fp16", [](Shape& shape) { activate_back<__half>(shape, ElementType::kHalf); }}},
      {"gated_activation_backward_kernel"});
}

}  // namespace zeroth::emulated::elementwise_test
