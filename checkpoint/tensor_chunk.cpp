#include "checkpoint/tensor_chunk.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text/printable.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kMaxElementBytes = 8;

// An Overlap is the intersection of two slices by dimension, with the fewest dimensions that show
// all contiguity: a dimension that both slices cover alike is folded into the one before.
struct Overlap {
  Shape wanted, wanted_extent;  // start within the wanted slice, extent of that slice
  Shape stored, stored_extent;
  Shape extent;  // of the intersection
};

struct DimensionRange {
  int64_t begin, end;
  int64_t extent() const { return end - begin; }
};

// Returns false if the intersection is empty.
bool add_dimension(const DimensionRange& wanted, const DimensionRange& stored, Overlap& overlap) {
  const int64_t begin = std::max(wanted.begin, stored.begin);
  const int64_t extent = std::min(wanted.end, stored.end) - begin;
  if (extent <= 0) return false;
  const bool same = wanted.begin == stored.begin && wanted.end == stored.end;
  if (same && !overlap.extent.empty()) {
    for (Shape* part : {&overlap.wanted, &overlap.wanted_extent, &overlap.stored,
                        &overlap.stored_extent, &overlap.extent}) {
      part->back() *= extent;
    }
    return true;
  }
  overlap.wanted.push_back(begin - wanted.begin);
  overlap.wanted_extent.push_back(wanted.extent());
  overlap.stored.push_back(begin - stored.begin);
  overlap.stored_extent.push_back(stored.extent());
  overlap.extent.push_back(extent);
  return true;
}

std::optional<Overlap> overlap_slices(const TensorSlice& wanted, const TensorSlice& stored) {
  Overlap overlap;
  for (size_t i = 0; i < wanted.sizes.size(); ++i) {
    if (!add_dimension({wanted.offsets[i], wanted.end(i)}, {stored.offsets[i], stored.end(i)},
                       overlap))
      return std::nullopt;
  }
  if (overlap.extent.empty()) add_dimension({0, 1}, {0, 1}, overlap);  // scalars
  return overlap;
}

Shape strides_of(const Shape& extents) {
  Shape strides(extents.size(), 1);
  for (size_t i = extents.size(); i-- > 1;) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

int64_t divide_round_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Returns the rows of the outermost dimension in which both ranges have elements.
DimensionRange rows_of(const Overlap& overlap, int64_t wanted_stride, const ElementRange& wanted,
                       int64_t stored_stride, const ElementRange& stored) {
  const int64_t first = std::max(wanted.begin / wanted_stride - overlap.wanted[0],
                                 stored.begin / stored_stride - overlap.stored[0]);
  const int64_t last = std::min(divide_round_up(wanted.end, wanted_stride) - overlap.wanted[0],
                                divide_round_up(stored.end, stored_stride) - overlap.stored[0]);
  return {std::max<int64_t>(first, 0), std::min(last, overlap.extent[0])};
}

// Appends a row's elements that both ranges contain. row.wanted and row.stored are the starts of
// the row in the slices.
void add_row(const ElementRun& row, const ElementRange& wanted, const ElementRange& stored,
             std::vector<ElementRun>& runs) {
  const int64_t from = std::max({int64_t{0}, wanted.begin - row.wanted, stored.begin - row.stored});
  const int64_t to = std::min({row.count, wanted.end - row.wanted, stored.end - row.stored});
  if (from >= to) return;
  const ElementRun run{row.wanted + from - wanted.begin, row.stored + from - stored.begin,
                       to - from};
  if (!runs.empty()) {
    ElementRun& last = runs.back();
    if (last.wanted + last.count == run.wanted && last.stored + last.count == run.stored) {
      last.count += run.count;
      return;
    }
  }
  runs.push_back(run);
}

// Returns "0:64,128:256".
std::string bounds_text(const TensorSlice& slice) {
  std::string text;
  for (size_t i = 0; i < slice.sizes.size(); ++i) {
    text += fmt::format("{}{}:{}", i == 0 ? "" : ",", slice.offsets[i], slice.end(i));
  }
  return text;
}

}  // namespace

TensorChunk TensorChunk::full(std::string tensor, std::string state, std::string dtype,
                              Shape shape) {
  TensorSlice slice = TensorSlice::full(std::move(shape));
  const ElementRange all{0, slice.elements()};
  return {std::move(tensor), std::move(state), std::move(dtype), std::move(slice), all};
}

int64_t TensorChunk::bytes() const {
  const auto size = element_size(dtype);
  ZEROTH_CHECK(size, "{} has the dtype {}", tensor, dtype);
  return elements() * *size;
}

std::optional<int64_t> element_count(const Shape& shape) {
  int64_t bytes = kMaxElementBytes;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      empty = true;  // the other extents may have any size
    } else if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : bytes / kMaxElementBytes;
}

std::string validation_error(const TensorChunk& chunk) {
  if (chunk.tensor.empty()) return "a tensor without a name";
  if (chunk.state.empty()) return "a state without a name";
  if (!element_size(chunk.dtype)) {
    return fmt::format("unknown dtype {}", shortened(chunk.dtype));
  }
  const auto& [shape, offsets, sizes] = chunk.slice;
  if (shape.size() > kMaxDimensions) {
    return fmt::format("its tensor has {} dimensions; at most {} are supported", shape.size(),
                       kMaxDimensions);
  }
  if (!element_count(shape)) return fmt::format("invalid shape [{}]", fmt::join(shape, ", "));
  if (offsets.size() != shape.size() || sizes.size() != shape.size()) {
    return fmt::format("its slice has {} and {} dimensions, the tensor {}", offsets.size(),
                       sizes.size(), shape.size());
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (offsets[i] < 0 || sizes[i] < 0 || chunk.slice.end(i) > shape[i]) {
      return fmt::format("its slice {}:{} is invalid for dimension {} of size {}", offsets[i],
                         chunk.slice.end(i), i, shape[i]);
    }
  }
  const ElementRange& range = chunk.range;
  if (range.begin < 0 || range.begin > range.end || range.end > chunk.slice.elements()) {
    return fmt::format("its range {}:{} is not within the {} elements of its slice", range.begin,
                       range.end, chunk.slice.elements());
  }
  return "";
}

std::string to_string(const TensorSlice& slice, const ElementRange& range) {
  return fmt::format("[{}]({}:{})", bounds_text(slice), range.begin, range.end);
}

std::string chunk_key(const TensorChunk& chunk) {
  return fmt::format("{}|{}|{}|{}:{}", chunk.tensor, chunk.state, bounds_text(chunk.slice),
                     chunk.range.begin, chunk.range.end);
}

std::vector<ElementRun> common_element_runs(const TensorSlice& wanted_slice,
                                            const ElementRange& wanted,
                                            const TensorSlice& stored_slice,
                                            const ElementRange& stored) {
  ZEROTH_CHECK(wanted_slice.sizes.size() == stored_slice.sizes.size(), "{} and {} dimensions",
               wanted_slice.sizes.size(), stored_slice.sizes.size());
  std::vector<ElementRun> runs;
  const auto overlap = overlap_slices(wanted_slice, stored_slice);
  if (!overlap || wanted.elements() <= 0 || stored.elements() <= 0) return runs;
  const Shape wanted_strides = strides_of(overlap->wanted_extent);
  const Shape stored_strides = strides_of(overlap->stored_extent);
  const size_t last = overlap->extent.size() - 1;
  if (last == 0) {
    add_row({overlap->wanted[0], overlap->stored[0], overlap->extent[0]}, wanted, stored, runs);
    return runs;
  }
  const DimensionRange rows =
      rows_of(*overlap, wanted_strides[0], wanted, stored_strides[0], stored);
  Shape at(last, 0);  // position of the row within the intersection
  for (at[0] = rows.begin; at[0] < rows.end;) {
    ElementRun row{overlap->wanted[last], overlap->stored[last], overlap->extent[last]};
    for (size_t i = 0; i < last; ++i) {
      row.wanted += (overlap->wanted[i] + at[i]) * wanted_strides[i];
      row.stored += (overlap->stored[i] + at[i]) * stored_strides[i];
    }
    add_row(row, wanted, stored, runs);
    for (size_t i = last; i-- > 0;) {
      if (++at[i] < overlap->extent[i] || i == 0) break;
      at[i] = 0;
    }
  }
  return runs;
}

}  // namespace zeroth::checkpoint
