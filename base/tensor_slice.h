// Where the elements of a box lie in the tensor that it is a part of, both counted row by row. Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <vector>

namespace zeroth {

// A part of a tensor, from `offsets` on and of `sizes` in each dimension; without dimensions: the
// one element of a scalar.
struct TensorSlice {
  std::vector<int64_t> shape;  // of the whole tensor
  std::vector<int64_t> offsets, sizes;

  // All of it.
  static TensorSlice full(std::vector<int64_t> shape);
  int64_t elements() const;
  int64_t tensor_elements() const;
  bool operator==(const TensorSlice&) const = default;
};

// So many rows, which follow each other in the box and begin `stride` apart in the whole tensor.
struct SliceRows {
  int64_t offset = 0;  // the first element in the whole tensor
  int64_t count = 0;
  int64_t length = 0;  // of each, in elements
  int64_t stride = 0;

  int64_t elements() const { return count * length; }
  // Where the elements [begin, end) of these rows lie: calls visit(at, offset, size) for each run
  // of them, `at` counted from the first element of the rows.
  template <typename Visit>
  void for_each_run(int64_t begin, int64_t end, const Visit& visit) const {
    for (int64_t at = begin; at < end;) {
      const int64_t in_row = at % length;
      const int64_t size = length - in_row < end - at ? length - in_row : end - at;
      visit(at, offset + at / length * stride + in_row, size);
      at += size;
    }
  }
  bool operator==(const SliceRows&) const = default;
};

// The elements [first, first + count) of the box, in their order and as few entries as dimensions
// and ragged ends make of them, none of more than `max_elements` elements. What is contiguous is
// one row.
std::vector<SliceRows> slice_rows(const TensorSlice& slice, int64_t first, int64_t count,
                                  int64_t max_elements);

}  // namespace zeroth
