#include "base/box_rows.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zeroth {
namespace {

int64_t product(const std::vector<int64_t>& extents) {
  int64_t all = 1;
  for (const int64_t extent : extents) all *= extent;
  return all;
}

// The same box with as few dimensions as show all that is contiguous: one that it has all of is
// folded into the one before.
TensorBox folded(const TensorBox& box) {
  TensorBox folded;
  for (size_t i = 0; i < box.shape.size(); ++i) {
    if (i > 0 && box.extent[i] == box.shape[i]) {
      for (auto* part : {&folded.shape, &folded.begin, &folded.extent}) {
        part->back() *= box.shape[i];
      }
      continue;
    }
    folded.shape.push_back(box.shape[i]);
    folded.begin.push_back(box.begin[i]);
    folded.extent.push_back(box.extent[i]);
  }
  return folded.shape.empty() ? TensorBox::whole({1}) : folded;
}

// Where row `row` of the box begins in the whole tensor.
int64_t begin_of_row(const TensorBox& box, int64_t row) {
  int64_t stride = box.shape.back();
  int64_t begin = box.begin.back();
  for (size_t i = box.shape.size() - 1; i-- > 0;) {
    begin += (box.begin[i] + row % box.extent[i]) * stride;
    row /= box.extent[i];
    stride *= box.shape[i];
  }
  return begin;
}

}  // namespace

TensorBox TensorBox::whole(std::vector<int64_t> shape) {
  std::vector<int64_t> begin(shape.size(), 0);
  return {shape, std::move(begin), shape};
}

int64_t TensorBox::elements() const {
  return product(extent);
}

int64_t TensorBox::elements_of_whole() const {
  return product(shape);
}

std::vector<BoxRows> rows_of_box(const TensorBox& box, int64_t first, int64_t count, int64_t most) {
  ZEROTH_CHECK(first >= 0 && count >= 0 && first + count <= box.elements() && most > 0,
               "{} + {} of {} elements, {} at a time", first, count, box.elements(), most);
  const TensorBox flat = folded(box);
  const size_t dimensions = flat.shape.size();
  const int64_t length = flat.extent.back();
  const int64_t stride = flat.shape.back();
  const int64_t plane = dimensions > 1 ? flat.extent[dimensions - 2] : 1;
  std::vector<BoxRows> parts;
  const int64_t end = first + count;
  for (int64_t at = first; at < end; at += parts.back().elements()) {
    const int64_t row = at / length;
    const int64_t in_row = at % length;
    const int64_t left = std::min(end - at, most);
    BoxRows part{begin_of_row(flat, row) + in_row, 1, std::min(length - in_row, left), stride};
    if (in_row == 0 && left >= length) part.count = std::min(left / length, plane - row % plane);
    parts.push_back(part);
  }
  return parts;
}

}  // namespace zeroth
