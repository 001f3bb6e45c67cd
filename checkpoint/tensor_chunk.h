// A checkpoint stores a model as chunks. A chunk is a range of elements, in row-major order, of a
// slice of one state of one tensor. It is independent of ranks, stages, padding and fused buffers:
// any layout can read chunks that any other layout wrote. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor_slice.h"

namespace zeroth::checkpoint {

using Shape = std::vector<int64_t>;
inline constexpr size_t kMaxDimensions = 64;  // as in PyTorch

// An ElementRange counts elements of a slice in row-major order; half open.
struct ElementRange {
  int64_t begin = 0, end = 0;

  int64_t elements() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

// A StoredState describes a state of a tensor as a checkpoint stores it.
struct StoredState {
  std::string tensor, state, dtype;
  Shape shape;
};

struct TensorChunk {
  std::string tensor;  // Hugging Face's name
  std::string state;   // "master", "exp_avg", ...
  std::string dtype;   // safetensors' name: "F32", "BF16", ...
  TensorSlice slice;
  ElementRange range;

  // Returns a chunk that covers the whole tensor.
  static TensorChunk full(std::string tensor, std::string state, std::string dtype, Shape shape);
  int64_t elements() const { return range.elements(); }
  int64_t bytes() const;
  bool operator==(const TensorChunk&) const = default;
};

// Returns the number of elements. Returns nothing if it, times the largest element size, exceeds 64
// bits, or if an extent is negative.
std::optional<int64_t> element_count(const Shape& shape);

// Returns why a chunk is invalid; empty if it is valid. Every chunk read or planned passes this
// check.
std::string validation_error(const TensorChunk& chunk);

// Returns "[0:64,128:256](0:4096)", "[](0:1)".
std::string to_string(const TensorSlice& slice, const ElementRange& range);
// Returns the chunk's unique name in the file: "model.norm.weight|exp_avg|0:64,128:256|0:4096".
std::string chunk_key(const TensorChunk& chunk);

// An ElementRun is contiguous on both sides. Its offsets count from the start of each side's range.
struct ElementRun {
  int64_t wanted = 0, stored = 0, count = 0;
  bool operator==(const ElementRun&) const = default;
};

// Returns the elements that two chunks of one tensor share, in the order of the wanted one. Both
// slices have the same number of dimensions, and each range lies within its slice.
std::vector<ElementRun> common_element_runs(const TensorSlice& wanted_slice,
                                            const ElementRange& wanted,
                                            const TensorSlice& stored_slice,
                                            const ElementRange& stored);

}  // namespace zeroth::checkpoint
