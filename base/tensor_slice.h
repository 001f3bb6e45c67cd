// The location of a slice's elements in its tensor, both in row-major order. Pure arithmetic.
#pragma once

#include <cstdint>
#include <vector>

namespace zeroth {

// A TensorSlice is a rectangular part of a tensor with an offset and a size per dimension. Without
// dimensions it is the single element of a scalar.
struct TensorSlice {
  std::vector<int64_t> shape;  // of the full tensor
  std::vector<int64_t> offsets, sizes;

  // Returns the slice that covers the full tensor.
  static TensorSlice full(std::vector<int64_t> shape);
  int64_t elements() const;
  int64_t tensor_elements() const;
  bool operator==(const TensorSlice&) const = default;
};

// SliceRows are `count` rows that are consecutive in the slice and begin `stride` elements apart in
// the full tensor.
struct SliceRows {
  int64_t offset = 0;  // of the first element in the full tensor
  int64_t count = 0;
  int64_t length = 0;  // elements of each row
  int64_t stride = 0;

  int64_t elements() const { return count * length; }
  // Calls visit(at, offset, size) for each contiguous run of the elements [begin, end) of these
  // rows: `at` counts from the first element of the rows, `offset` from that of the full tensor.
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

// Returns the elements [first, first + count) of the slice, in order, as few entries as dimensions
// and ragged ends allow, none of more than `max_elements` elements. A contiguous range is one row.
std::vector<SliceRows> slice_rows(const TensorSlice& slice, int64_t first, int64_t count,
                                  int64_t max_elements);

}  // namespace zeroth
