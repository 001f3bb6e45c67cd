#include "base/tensor_slice.h"

#include <doctest/doctest.h>

#include <cstddef>

namespace zeroth::tensor_slice_test {
namespace {

// By their definition: the elements of a box as they are numbered in the whole tensor.
std::vector<int64_t> elements_of(const TensorSlice& box) {
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < box.tensor_elements(); ++i) {
    bool inside = true;
    int64_t rest = i;
    for (size_t d = box.shape.size(); d-- > 0;) {
      const int64_t at = rest % box.shape[d];
      rest /= box.shape[d];
      inside = inside && at >= box.offsets[d] && at < box.offsets[d] + box.sizes[d];
    }
    if (inside) elements.push_back(i);
  }
  return elements;
}

std::vector<int64_t> elements_of(const std::vector<SliceRows>& rows) {
  std::vector<int64_t> elements;
  for (const SliceRows& part : rows) {
    part.for_each_run(0, part.elements(), [&](int64_t, int64_t whole, int64_t size) {
      for (int64_t i = 0; i < size; ++i) elements.push_back(whole + i);
    });
  }
  return elements;
}

// Every range of every box of a tensor, whole and in small portions.
void check_all(const TensorSlice& box) {
  const std::vector<int64_t> expected = elements_of(box);
  for (int64_t first = 0; first < box.elements(); ++first) {
    for (int64_t count = 0; first + count <= box.elements(); ++count) {
      for (const int64_t max_elements : {int64_t{2}, int64_t{7}, int64_t{1} << 40}) {
        const auto rows = slice_rows(box, first, count, max_elements);
        REQUIRE(elements_of(rows) ==
                std::vector<int64_t>(expected.begin() + first, expected.begin() + first + count));
        for (const SliceRows& part : rows) CHECK(part.elements() <= max_elements);
      }
    }
  }
}

}  // namespace

TEST_CASE("every range of a box is found in the whole tensor") {
  check_all({{}, {}, {}});
  check_all({{9}, {2}, {5}});
  check_all({{4, 6}, {1, 0}, {2, 6}});
  check_all({{4, 6}, {0, 2}, {4, 3}});
  check_all({{4, 6}, {1, 5}, {3, 1}});
  check_all({{3, 4, 5}, {1, 1, 0}, {2, 2, 5}});
  check_all({{3, 4, 5}, {0, 1, 2}, {3, 2, 3}});
  check_all({{3, 2, 5}, {1, 0, 1}, {1, 2, 3}});
}

TEST_CASE("what is contiguous is one row, and a slice of columns one entry of rows") {
  constexpr int64_t kAll = 1 << 20;
  using Parts = std::vector<SliceRows>;
  CHECK(slice_rows(TensorSlice::full({8, 6}), 5, 30, kAll) == Parts{{5, 1, 30, 48}});
  CHECK(slice_rows({{8, 6}, {2, 0}, {3, 6}}, 5, 10, kAll) == Parts{{17, 1, 10, 48}});
  CHECK(slice_rows({{8, 6}, {0, 2}, {8, 3}}, 0, 24, kAll) == Parts{{2, 8, 3, 6}});
  CHECK(slice_rows({{8, 6}, {0, 2}, {8, 3}}, 2, 12, kAll) ==
        Parts{{4, 1, 1, 6}, {8, 3, 3, 6}, {26, 1, 2, 6}});
}

TEST_CASE("runs are found from anywhere within rows") {
  const SliceRows rows{100, 4, 3, 10};
  std::vector<std::vector<int64_t>> runs;
  rows.for_each_run(2, 8, [&](int64_t at, int64_t whole, int64_t size) {
    runs.push_back({at, whole, size});
  });
  CHECK(runs == std::vector<std::vector<int64_t>>{{2, 102, 1}, {3, 110, 3}, {6, 120, 2}});
}

TEST_CASE("a slice may be given by its ends") {
  const TensorSlice slice = TensorSlice::between({8, 6}, {2, 0}, {5, 6});
  CHECK(slice == TensorSlice{{8, 6}, {2, 0}, {3, 6}});
  CHECK(slice.end(0) == 5);
  CHECK(slice.end(1) == 6);
}

}  // namespace zeroth::tensor_slice_test
