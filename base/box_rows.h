// Where the elements of a box lie in the tensor that it is a part of, both counted row by row. Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <vector>

namespace zeroth {

// A part of a tensor, from `begin` on and of `extent` in each dimension; without dimensions: the
// one element of a scalar.
struct TensorBox {
  std::vector<int64_t> shape;  // of the whole tensor
  std::vector<int64_t> begin, extent;

  // All of it.
  static TensorBox whole(std::vector<int64_t> shape);
  int64_t elements() const;
  int64_t elements_of_whole() const;
  bool operator==(const TensorBox&) const = default;
};

// So many rows, which follow each other in the box and begin `stride` apart in the whole tensor.
struct BoxRows {
  int64_t whole = 0;  // the first element in the whole tensor
  int64_t count = 0;
  int64_t length = 0;  // of each, in elements
  int64_t stride = 0;

  int64_t elements() const { return count * length; }
  // Where the elements [begin, end) of these rows lie: calls visit(at, whole, size) for each run of
  // them, `at` counted from the first element of the rows.
  template <typename Visit>
  void for_each_run(int64_t begin, int64_t end, const Visit& visit) const {
    for (int64_t at = begin; at < end;) {
      const int64_t in_row = at % length;
      const int64_t size = length - in_row < end - at ? length - in_row : end - at;
      visit(at, whole + at / length * stride + in_row, size);
      at += size;
    }
  }
  bool operator==(const BoxRows&) const = default;
};

// The elements [first, first + count) of the box, in their order and as few entries as dimensions
// and ragged ends make of them, none of more than `most` elements. What is contiguous is one row.
std::vector<BoxRows> rows_of_box(const TensorBox& box, int64_t first, int64_t count, int64_t most);

}  // namespace zeroth
