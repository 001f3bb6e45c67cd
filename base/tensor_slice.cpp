#include "base/tensor_slice.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zeroth {
namespace {

struct ElementType {
  std::string_view dtype;
  int64_t bytes;
};
constexpr ElementType kElementTypes[] = {{"F64", 8},     {"I64", 8},     {"U64", 8},  {"F32", 4},
                                         {"I32", 4},     {"U32", 4},     {"F16", 2},  {"I16", 2},
                                         {"U16", 2},     {"BF16", 2},    {"BOOL", 1}, {"I8", 1},
                                         {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U8", 1}};

int64_t product(const std::vector<int64_t>& extents) {
  int64_t all = 1;
  for (const int64_t extent : extents) all *= extent;
  return all;
}

// Returns the slice with as few dimensions as possible: a dimension that it covers fully is folded
// into the previous one, so that contiguous elements are one row.
TensorSlice fold_contiguous(const TensorSlice& slice) {
  TensorSlice folded;
  for (size_t i = 0; i < slice.shape.size(); ++i) {
    if (i > 0 && slice.sizes[i] == slice.shape[i]) {
      for (auto* part : {&folded.shape, &folded.offsets, &folded.sizes}) {
        part->back() *= slice.shape[i];
      }
      continue;
    }
    folded.shape.push_back(slice.shape[i]);
    folded.offsets.push_back(slice.offsets[i]);
    folded.sizes.push_back(slice.sizes[i]);
  }
  return folded.shape.empty() ? TensorSlice::full({1}) : folded;
}

// Returns the offset of row `row` of the slice in the full tensor.
int64_t row_offset(const TensorSlice& slice, int64_t row) {
  int64_t stride = slice.shape.back();
  int64_t begin = slice.offsets.back();
  for (size_t i = slice.shape.size() - 1; i-- > 0;) {
    begin += (slice.offsets[i] + row % slice.sizes[i]) * stride;
    row /= slice.sizes[i];
    stride *= slice.shape[i];
  }
  return begin;
}

}  // namespace

std::optional<int64_t> element_size(std::string_view dtype) {
  for (const ElementType& type : kElementTypes) {
    if (type.dtype == dtype) return type.bytes;
  }
  return std::nullopt;
}

TensorSlice TensorSlice::full(std::vector<int64_t> shape) {
  std::vector<int64_t> begin(shape.size(), 0);
  return {shape, std::move(begin), shape};
}

TensorSlice TensorSlice::between(std::vector<int64_t> shape, std::vector<int64_t> begin,
                                 std::vector<int64_t> end) {
  std::vector<int64_t> sizes = std::move(end);
  for (size_t i = 0; i < std::min(begin.size(), sizes.size()); ++i) sizes[i] -= begin[i];
  return {std::move(shape), std::move(begin), std::move(sizes)};
}

int64_t TensorSlice::elements() const {
  return product(sizes);
}

int64_t TensorSlice::tensor_elements() const {
  return product(shape);
}

std::vector<SliceRows> slice_rows(const TensorSlice& slice, int64_t first, int64_t count,
                                  int64_t max_elements) {
  ZEROTH_CHECK(first >= 0 && count >= 0 && first + count <= slice.elements() && max_elements > 0,
               "{} + {} of {} elements, {} at a time", first, count, slice.elements(),
               max_elements);
  const TensorSlice flat = fold_contiguous(slice);
  const size_t dimensions = flat.shape.size();
  const int64_t length = flat.sizes.back();
  const int64_t stride = flat.shape.back();
  const int64_t plane = dimensions > 1 ? flat.sizes[dimensions - 2] : 1;
  std::vector<SliceRows> parts;
  const int64_t end = first + count;
  for (int64_t at = first; at < end; at += parts.back().elements()) {
    const int64_t row = at / length;
    const int64_t in_row = at % length;
    const int64_t left = std::min(end - at, max_elements);
    SliceRows part{row_offset(flat, row) + in_row, 1, std::min(length - in_row, left), stride};
    if (in_row == 0 && left >= length) part.count = std::min(left / length, plane - row % plane);
    parts.push_back(part);
  }
  return parts;
}

}  // namespace zeroth
