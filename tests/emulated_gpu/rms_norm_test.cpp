// RMSNorm's kernels beside its formula.
#include <doctest/doctest.h>

#include "model/kernels/gpu/fused.h"
#include "tests/emulated_gpu/emulation.h"
#include "tests/emulated_gpu/shapes.h"

namespace zeroth::emulated::rms_norm_test {
namespace {

using model::gpu::ElementType;

constexpr int64_t kFar = int64_t{1} << 31;

// How an instance spreads a row: its threads, the vectors of each, and the rows that a thread takes
// at once.
struct Spread {
  int64_t threads, vectors, rows;

  int64_t block() const { return threads == 32 ? 128 : threads; }
  int64_t of_block() const { return block() / threads * rows; }  // rows at once
};

constexpr Spread kForward[] = {{32, 1, 1}, {32, 2, 1},  {32, 4, 1}, {32, 8, 1},
                               {64, 8, 1}, {128, 8, 1}, {256, 8, 1}};
constexpr Spread kBackward[] = {{32, 1, 4},  {32, 2, 2},  {128, 1, 4}, {128, 2, 2},
                                {256, 2, 2}, {512, 2, 2}, {512, 4, 1}};

// Widths of one instance.
struct Widths {
  int64_t low, high;
  Spread spread;
  int64_t of_thread;  // elements, at most

  int64_t draw(Shape& shape, int64_t vector) const {
    if (shape.is_far()) return high;
    const int64_t width = shape.one_in(4) ? high : shape.from_to(low, high);
    return std::max(low, width / vector * vector);
  }
};

// Rows that a launch is to be seen to take: all, or those of a few blocks among very many.
struct Rows {
  int64_t count;
  std::vector<int64_t> taken;
  std::vector<uint64_t> blocks;
};

Rows few_rows(Shape& shape, const Widths& widths, int64_t width) {
  Rows rows;
  const Spread& spread = widths.spread;
  rows.count = shape.from_to(1, spread.threads == 32 ? 1 + 4096 / width % 20 : 1 + spread.rows);
  for (int64_t i = 0; i < rows.count; ++i) rows.taken.push_back(i);
  return rows;
}

// Blocks take rows in turn, so that `at_once` blocks lie between two rows of one of them.
Rows far_rows(Shape& shape, const Widths& widths, int64_t count, int64_t at_once) {
  const int64_t of_block = widths.spread.of_block();
  const int64_t turn = std::min(at_once, (count + of_block - 1) / of_block) * of_block;
  Rows rows;
  rows.count = count;
  std::vector<int64_t> some = {count - 1};
  if (count / turn < 100) some.insert(some.end(), {0, shape.from_to(0, count - 1)});
  for (const int64_t row : some) {
    const auto block = static_cast<uint64_t>(row % turn / of_block);
    if (std::ranges::count(rows.blocks, block) != 0) continue;
    rows.blocks.push_back(block);
    const int64_t begin = row % turn / of_block * of_block;
    for (int64_t first = begin; first < std::min(begin + of_block, count); ++first) {
      const int64_t last = first + (count - 1 - first) / turn * turn;
      for (const int64_t taken : {first, std::min(first + turn, last), last}) {
        if (std::ranges::count(rows.taken, taken) == 0) rows.taken.push_back(taken);
      }
    }
  }
  return rows;
}

template <typename T>
T* row_array(Shape& shape, const Rows& rows, int64_t width) {
  const int64_t count = rows.count * width;
  return rows.blocks.empty() ? shape.memory.array<T>(count, shape.offset(16))
                             : shape.memory.far_array<T>(count);
}

template <typename T>
void fill_rows(Shape& shape, const Rows& rows, int64_t width, T* to) {
  for (const int64_t row : rows.taken) {
    shape.fill(to + row * width, width);
    if (shape.one_in(12)) shape.put_special(to + row * width, width);
  }
}

void describe(Shape& shape, const Rows& rows, int64_t width) {
  shape.text = std::to_string(rows.count) + " rows of " + std::to_string(width);
}

template <typename T>
void forward(Shape& shape, ElementType kind, const Widths& widths) {
  const int64_t width = widths.draw(shape, 16 / sizeof(T));
  const Rows rows =
      shape.is_far() ? far_rows(shape, widths, kFar / width + shape.from_to(1, 99), INT64_MAX / 8)
                     : few_rows(shape, widths, width);
  describe(shape, rows, width);
  T* const x = row_array<T>(shape, rows, width);
  T* const y = row_array<T>(shape, rows, width);
  T* const weight = shape.memory.array<T>(width, shape.offset(16));
  float* const scale = row_array<float>(shape, rows, 1);
  const bool adds = shape.one_in(2);
  T* const addend = adds ? row_array<T>(shape, rows, width) : nullptr;
  T* const sum = adds ? row_array<T>(shape, rows, width) : nullptr;
  fill_rows(shape, rows, width, x);
  if (adds) fill_rows(shape, rows, width, addend);
  shape.fill(weight, width);
  const float eps = shape.one_in(2) ? 1e-5F : 1e-2F, offset = shape.one_in(2) ? 1 : 0;
  const bool in_fp32 = shape.one_in(2);
  shape.run(
      [&] {
        rms_norm_forward(
            kind, {x, weight, y, scale, rows.count, width, eps, addend, sum, offset, in_fp32},
            nullptr);
      },
      {bytes_of(y, rows.blocks.empty() ? rows.count * width : 0),
       bytes_of(sum, adds && rows.blocks.empty() ? rows.count * width : 0)},
      rows.blocks);
  for (const int64_t row : rows.taken) {
    for (int64_t i = row * width; adds && i < (row + 1) * width; ++i) {
      shape.expect("sum", i, sum[i], wide(x[i]) + wide(addend[i]),
                   std::abs(wide(x[i]) + wide(addend[i])) * kFloatStep);
    }
    const T *const from = (adds ? sum : x) + row * width, *const to = y + row * width;
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += wide(from[i]) * wide(from[i]);
    const double expected = 1 / std::sqrt(squares / static_cast<double>(width) + double{eps});
    const double error = static_cast<double>(widths.of_thread / 2 + 16) * kFloatStep;
    shape.expect("scale", row, scale[row], expected, expected * error);
    for (int64_t i = 0; i < width; ++i) {
      const double normal = wide(from[i]) * expected, slack = std::abs(normal) * error;
      const double factor = wide(weight[i]) + offset;
      const auto round = [&](double value) { return in_fp32 ? value : rounded<T>(value); };
      const double one = round(normal - slack) * factor;
      const double other = round(normal + slack) * factor;
      const double middle = (one + other) / 2;
      shape.expect(
          "y", row * width + i, to[i], middle,
          std::abs(one - other) / 2 + (std::abs(middle) + std::abs(offset * normal)) * kFloatStep);
    }
  }
}

template <typename T>
struct Backward {
  const T *dy, *x, *weight, *residual;
  const float* scale;
  T* dx;
  float* parts;
  float offset;
};

// dx of one row; adds to the weight's gradient and to what it may be off by.
template <typename T>
void expect_row(Shape& shape, const Backward<T>& at, int64_t row, int64_t width, double error,
                std::vector<double>& dweight, std::vector<double>& sizes) {
  const T *const dy = at.dy + row * width, *const x = at.x + row * width;
  const double scale = at.scale[row];
  double along = 0, size = 0;
  for (int64_t i = 0; i < width; ++i) {
    const double product = wide(dy[i]) * wide(x[i]),
                 weighted = product * (wide(at.weight[i]) + at.offset);
    along += weighted;
    size += std::abs(weighted);
    dweight[static_cast<size_t>(i)] += product * scale;
    sizes[static_cast<size_t>(i)] += std::abs(product * scale);
  }
  const double factor = scale * scale * scale / static_cast<double>(width);
  for (int64_t i = 0; i < width; ++i) {
    const double straight = scale * wide(dy[i]) * (wide(at.weight[i]) + at.offset);
    const double back = along * factor * wide(x[i]);
    const double more = at.residual != nullptr ? wide(at.residual[row * width + i]) : 0;
    const double slack = size * std::abs(factor * wide(x[i])) * error +
                         (4 * std::abs(straight) + 9 * std::abs(back) + std::abs(more) +
                          std::abs(scale * wide(dy[i]) * at.offset)) *
                             kFloatStep;
    shape.expect("dx", row * width + i, at.dx[row * width + i], straight - back + more, slack);
  }
}

template <typename T>
void backward(Shape& shape, ElementType kind, const Widths& widths) {
  const int64_t width = widths.draw(shape, 16 / sizeof(T));
  const bool some = shape.is_far() || shape.index % 50 == 9;  // where blocks take several rows
  const int64_t many =
      shape.is_far() ? kFar / width + shape.from_to(1, 99) : shape.from_to(500, 9000);
  const Rows rows = some ? far_rows(shape, widths, many, 65'536 / widths.spread.block())
                         : few_rows(shape, widths, width);
  describe(shape, rows, width);
  T* const dy = row_array<T>(shape, rows, width);
  T* const x = row_array<T>(shape, rows, width);
  T* const dx = row_array<T>(shape, rows, width);
  T* const weight = shape.memory.array<T>(width, shape.offset(16));
  float* const scale = row_array<float>(shape, rows, 1);
  const int64_t count = model::gpu::rms_norm_parts(kind, rows.count, width);
  const bool wanted = !shape.one_in(8);
  float* parts = nullptr;
  if (wanted) {
    parts = some ? shape.memory.far_array<float>(count * width)
                 : shape.memory.array<float>(count * width);
  }
  T* const residual = shape.one_in(2) ? row_array<T>(shape, rows, width) : nullptr;
  fill_rows(shape, rows, width, dy);
  if (residual != nullptr) fill_rows(shape, rows, width, residual);
  fill_rows(shape, rows, width, x);
  shape.fill(weight, width);
  const float offset = shape.one_in(2) ? 1 : 0;
  for (const int64_t row : rows.taken) scale[row] = static_cast<float>(0.5 + 2 * shape.uniform());
  shape.run(
      [&] {
        rms_norm_backward(
            kind, {dy, x, weight, scale, dx, parts, rows.count, width, residual, offset}, nullptr);
      },
      {bytes_of(dx, rows.blocks.empty() ? rows.count * width : 0),
       bytes_of(parts, rows.blocks.empty() && wanted ? count * width : 0)},
      rows.blocks);
  std::vector<double> dweight(static_cast<size_t>(width)), sizes = dweight;
  const double error = static_cast<double>(widths.of_thread + 24) * kFloatStep;
  for (const int64_t row : rows.taken) {
    expect_row<T>(shape, {dy, x, weight, residual, scale, dx, parts, offset}, row, width, error,
                  dweight, sizes);
  }
  if (!wanted) return;
  std::vector<double> sums(static_cast<size_t>(width));
  const int64_t of_block = widths.spread.block() / widths.spread.threads;
  for (int64_t part = 0; part < count; ++part) {
    const auto block = static_cast<uint64_t>(part / of_block);
    if (some && std::ranges::count(rows.blocks, block) == 0) continue;
    for (int64_t i = 0; i < width; ++i) sums[static_cast<size_t>(i)] += parts[part * width + i];
  }
  for (int64_t i = 0; i < width; ++i) {
    const auto at = static_cast<size_t>(i);
    shape.expect("dweight", i, sums[at], dweight[at], sizes[at] * 8 * kFloatStep);
  }
}

// One job for each instance of a kernel.
template <typename T>
void add_jobs(std::vector<Job>& jobs, const std::string& name, ElementType kind,
              std::span<const Spread> spreads, void (*shape)(Shape&, ElementType, const Widths&)) {
  constexpr int64_t kVector = 16 / sizeof(T);
  int64_t before = 0;
  for (const Spread& spread : spreads) {
    const int64_t high = spread.threads * spread.vectors * kVector;
    const Widths widths = {before + kVector, high, spread, spread.vectors * kVector};
    jobs.push_back(
        {name + " of " + std::to_string(high), [=](Shape& draw) { shape(draw, kind, widths); }});
    before = high;
  }
}

}  // namespace

TEST_CASE("forward_kernel of RMSNorm gives its formula's numbers for rows of any width") {
  std::vector<Job> jobs;
  add_jobs<float>(jobs, "fp32", ElementType::kFloat, kForward, forward<float>);
  add_jobs<__nv_bfloat16>(jobs, "bf16", ElementType::kBfloat16, kForward, forward<__nv_bfloat16>);
  add_jobs<__half>(jobs, "fp16", ElementType::kHalf, kForward, forward<__half>);
  run_shapes(jobs, {"forward_kernel"});
}

TEST_CASE("backward_kernel of RMSNorm gives both gradients of its formula") {
  std::vector<Job> jobs;
  add_jobs<float>(jobs, "fp32", ElementType::kFloat, kBackward, backward<float>);
  add_jobs<__nv_bfloat16>(jobs, "bf16", ElementType::kBfloat16, kBackward, backward<__nv_bfloat16>);
  add_jobs<__half>(jobs, "fp16", ElementType::kHalf, kBackward, backward<__half>);
  run_shapes(jobs, {"backward_kernel"});
}

}  // namespace zeroth::emulated::rms_norm_test
