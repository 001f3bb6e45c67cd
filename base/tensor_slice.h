// Tensors in files: the sizes of their elements, and the location of a slice's elements in its
// tensor, both in row-major order. Pure arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace zeroth {

// Returns the bytes of one element of a safetensors file's "F32", "BF16", "U8", ..., or nullopt if
// `dtype` is unknown.
std::optional<int64_t> element_size(std::string_view dtype);

// A TensorSlice is a rectangular part of a tensor with an offset and a size per dimension. Without
// dimensions it is the single element of a scalar.
struct TensorSlice {
  std::vector<int64_t> shape;  // of the full tensor
  std::vector<int64_t> offsets, sizes;

  // Returns the slice that covers the full tensor.
  static TensorSlice full(std::vector<int64_t> shape);
  // Returns the slice [begin[i], end[i]) of each dimension i.
  static TensorSlice between(std::vector<int64_t> shape, std::vector<int64_t> begin,
                             std::vector<int64_t> end);
  int64_t end(size_t dimension) const { return offsets[dimension] + sizes[dimension]; }
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
