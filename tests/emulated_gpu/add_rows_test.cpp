// The kernels of the embedding's gradient beside its formula.
#include <doctest/doctest.h>

#include "model/kernels/gpu/fused.h"
#include "tests/emulated_gpu/emulation.h"
#include "tests/emulated_gpu/shapes.h"

namespace zeroth::emulated::add_rows_test {
namespace {

using model::gpu::ElementType;

constexpr int64_t kFar = int64_t{1} << 31;
constexpr int64_t kColumns = 128, kPositions = 32;  // of a block

// Positions [first, first + drawn) of `count`, sorted by row; `order` says where in dy each is.
struct Positions {
  int64_t count, first, drawn;
  int64_t *rows, *order;
  std::vector<uint64_t> blocks;  // that take them; empty: all
};

// Rows follow each other by steps, each with so many positions that some reach over pieces.
int64_t draw_rows(Shape& shape, Positions& at, int64_t first_row, int64_t first_place) {
  int64_t row = first_row;
  const int64_t length = shape.one_in(4) ? 200 : shape.from_to(1, 40);
  std::vector<int64_t> places(static_cast<size_t>(at.drawn));
  for (int64_t i = 0, left = 0; i < at.drawn; ++i, --left) {
    if (left == 0) {
      row += i == 0 ? 0 : shape.from_to(1, 3);
      left = shape.from_to(1, length);
    }
    at.rows[at.first + i] = row;
    places[static_cast<size_t>(i)] = first_place + i;
  }
  for (int64_t i = at.drawn; i > 0; --i) {
    std::swap(places[static_cast<size_t>(i - 1)],
              places[static_cast<size_t>(shape.from_to(0, i - 1))]);
    at.order[at.first + i - 1] = places[static_cast<size_t>(i - 1)];
  }
  return row + 1 - first_row;  // how many rows there may be
}

// Few positions, or a few pieces among so many that the number of the first is beyond 2^31.
Positions positions(Shape& shape, int64_t width, bool many) {
  Positions at = {0, 0, shape.one_in(3) ? shape.from_to(1, 40) : shape.from_to(1, 400), {}, {}, {}};
  at.count = at.drawn;
  if (many) {
    at.drawn = kPositions * shape.from_to(2, 5);
    at.first = kFar + kPositions * shape.from_to(0, 9);
    at.count = at.first + at.drawn + shape.from_to(1, 500);
    const int64_t pieces = (at.count + kPositions - 1) / kPositions;
    for (int64_t i = 0; i < at.drawn / kPositions; ++i) {
      for (int64_t k = 0; k < (width + kColumns - 1) / kColumns; ++k) {
        at.blocks.push_back(static_cast<uint64_t>(k * pieces + at.first / kPositions + i));
      }
    }
  }
  const auto array = [&](int64_t count) {
    return many ? shape.memory.far_array<int64_t>(count) : shape.memory.array<int64_t>(count);
  };
  at.rows = array(at.count);
  at.order = array(at.count);
  return at;
}

// Of the rows from the first drawn one on, by row and column.
template <typename Table>
struct Sums {
  std::vector<Table> before;
  std::vector<double> sum, size;
  std::vector<int> added;  // positions of a row

  template <typename Dy>
  Sums(std::span<const Table> table, const Positions& at, int64_t first_row, const Dy* dy,
       int64_t width)
      : before(table.begin(), table.end()),
        sum(before.size()),
        size(before.size()),
        added(before.size() / static_cast<size_t>(width)) {
    for (int64_t i = at.first; i < at.first + at.drawn; ++i) {
      const int64_t row = at.rows[i] - first_row;
      ++added[static_cast<size_t>(row)];
      for (int64_t column = 0; column < width; ++column) {
        const double x = wide(dy[at.order[i] * width + column]);
        sum[static_cast<size_t>(row * width + column)] += x;
        size[static_cast<size_t>(row * width + column)] += std::abs(x);
      }
    }
  }

  void expect(const Shape& shape, const Table* table, int64_t width) const {
    for (size_t k = 0; k < before.size(); ++k) {
      const int count = added[k / static_cast<size_t>(width)];
      const double expected = wide(before[k]) + sum[k];
      const double slack = size[k] * (count + 2) + std::abs(wide(before[k])) * 2;
      if (count > 0) {
        shape.expect("table", static_cast<int64_t>(k), table[k], expected, slack * kFloatStep);
      } else if (std::memcmp(&before[k], table + k, sizeof(Table)) != 0) {
        throw Failure(shape.text + ": changes a row that no position comes to");
      }
    }
  }
};

template <typename Table, typename Dy>
void add(Shape& shape, ElementType table_kind, ElementType dy_kind) {
  // Far: rows of the table and of dy beyond 2^31, or positions.
  const bool many = shape.is_far() && shape.one_in(2), wide_apart = shape.is_far() && !many;
  const int64_t width = many              ? shape.from_to(1, 40)
                        : shape.one_in(2) ? shape.from_to(1, 40)
                                          : shape.from_to(1, 300);
  Positions at = positions(shape, width, many);
  const int64_t away = wide_apart ? kFar / width + shape.from_to(0, 99) : 0;
  const int64_t first_row = away + (many ? 1 : shape.from_to(0, 3));
  const int64_t rows = draw_rows(shape, at, first_row, away);
  shape.text = std::to_string(at.count) + " positions, " + std::to_string(rows) + " rows of " +
               std::to_string(width) + " from " + std::to_string(first_row) + " on";

  const int64_t elements = (first_row + rows + 1) * width, begin = first_row * width;
  Table* const table = wide_apart
                           ? shape.memory.far_array<Table>(elements)
                           : shape.memory.array<Table>(elements, shape.offset(sizeof(Table)));
  const int64_t places = (away + at.drawn) * width;
  Dy* const dy = wide_apart ? shape.memory.far_array<Dy>(places)
                            : shape.memory.array<Dy>(places, shape.offset(sizeof(Dy)));
  const int64_t parts_size = model::gpu::add_rows_parts(at.count) * width;
  float* const parts =
      many ? shape.memory.far_array<float>(parts_size) : shape.memory.array<float>(parts_size);
  shape.fill(table + begin, elements - begin);
  shape.fill(dy + away * width, at.drawn * width);
  if (shape.one_in(8)) shape.put_special(dy + away * width, at.drawn * width);
  if (shape.one_in(8)) shape.put_special(table + begin, elements - begin);

  const Sums<Table> sums({table + begin, table + elements}, at, first_row, dy, width);
  const auto launch = [&] {
    add_rows(table_kind, dy_kind, {table, dy, at.rows, at.order, parts, at.count, width}, nullptr);
  };
  if (many) {
    const OnlyBlocks only(at.blocks);
    launch();
  } else {
    shape.run(launch, {bytes_of(table + begin, elements - begin)});
  }
  sums.expect(shape, table + begin, width);
}

}  // namespace

TEST_CASE("sum_pieces and join_pieces add to each row what its positions have") {
  using Bf16 = __nv_bfloat16;
  constexpr auto kWide = ElementType::kFloat, kBf16 = ElementType::kBfloat16,
                 kHalf = ElementType::kHalf;
  run_shapes({{"fp32", [](Shape& shape) { add<float, float>(shape, kWide, kWide); }},
              {"bf16 to fp32", [](Shape& shape) { add<float, Bf16>(shape, kWide, kBf16); }},
              {"bf16", [](Shape& shape) { add<Bf16, Bf16>(shape, kBf16, kBf16); }},
              {"fp16 to fp32", [](Shape& shape) { add<float, __half>(shape, kWide, kHalf); }},
              {"fp16", [](Shape& shape) { add<__half, __half>(shape, kHalf, kHalf); }}},
             {"sum_pieces", "join_pieces"});
}

}  // namespace zeroth::emulated::add_rows_test
