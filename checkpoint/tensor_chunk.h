// A checkpoint stores a model as chunks. A chunk is a range of elements, in row-major order, of a
// box in one state of one tensor. It is independent of ranks, stages, padding and fused buffers:
// any layout can read chunks that any other layout wrote. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::checkpoint {

using Shape = std::vector<int64_t>;
inline constexpr size_t kMaxDimensions = 64;  // as in PyTorch

// ChunkBounds is a box within a tensor, half open in each dimension. With no dimensions: a scalar.
struct ChunkBounds {
  Shape begin, end;

  static ChunkBounds full(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }
  int64_t elements() const;
  bool operator==(const ChunkBounds&) const = default;
};

// An ElementRange counts elements of a box in row-major order; half open.
struct ElementRange {
  int64_t begin = 0, end = 0;

  int64_t elements() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

struct TensorChunk {
  std::string tensor;  // Hugging Face's name
  std::string state;   // "master", "exp_avg", ...
  std::string dtype;   // safetensors' name: "F32", "BF16", ...
  Shape shape;         // of the whole tensor
  ChunkBounds box;
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
std::string to_string(const ChunkBounds& box, const ElementRange& range);
// Returns the chunk's unique name in the file: "model.norm.weight|exp_avg|0:64,128:256|0:4096".
std::string chunk_key(const TensorChunk& chunk);

// An ElementRun is contiguous on both sides. Its offsets count from the start of each side's range.
struct ElementRun {
  int64_t wanted = 0, stored = 0, count = 0;
  bool operator==(const ElementRun&) const = default;
};

// Returns the elements that two chunks of one tensor share, in the order of the wanted one. Both
// boxes have the same number of dimensions, and each range lies within its box.
std::vector<ElementRun> common_element_runs(const ChunkBounds& wanted_box,
                                            const ElementRange& wanted,
                                            const ChunkBounds& stored_box,
                                            const ElementRange& stored);

}  // namespace zeroth::checkpoint
