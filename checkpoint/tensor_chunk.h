// What a checkpoint stores of a model: pieces. A piece is a run of elements, row by row, of a box
// in one state of one tensor. RankGroup, stages, padding and fused buffers do not appear: any
// layout writes pieces and any other one reads them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::checkpoint {

using Shape = std::vector<int64_t>;
inline constexpr size_t kMaxDimensions = 64;  // as in PyTorch

// A part of a tensor, half open in each dimension; without dimensions: the one element of a scalar.
struct ChunkBounds {
  Shape begin, end;

  static ChunkBounds full(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }
  int64_t elements() const;
  bool operator==(const ChunkBounds&) const = default;
};

// Of the elements of a box, counted row by row; half open.
struct ElementRange {
  int64_t begin = 0, end = 0;

  int64_t elements() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

struct TensorChunk {
  std::string tensor;  // Hugging Face's name
  std::string state;   // "master", "exp_avg", ...
  std::string dtype;   // in safetensors' words: "F32", "BF16", ...
  Shape shape;         // of the whole tensor
  ChunkBounds box;
  ElementRange range;

  // All of the tensor.
  static TensorChunk full(std::string tensor, std::string state, std::string dtype, Shape shape);
  int64_t elements() const { return range.elements(); }
  int64_t bytes() const;
  bool operator==(const TensorChunk&) const = default;
};

// Their number; nothing where it, times the largest element, is beyond 64 bits, or an extent is
// negative.
std::optional<int64_t> element_count(const Shape& shape);

// Why this is no piece; empty where it is one. What is read or planned has passed this.
std::string validation_error(const TensorChunk& chunk);

// "[0:64,128:256](0:4096)", "[](0:1)".
std::string to_string(const ChunkBounds& box, const ElementRange& range);
// "model.norm.weight|exp_avg|0:64,128:256|0:4096": its name in the file; no two pieces share one.
std::string chunk_key(const TensorChunk& chunk);

// Elements that stand behind each other on both sides: counted from the begin of either's range.
struct ElementRun {
  int64_t wanted = 0, stored = 0, count = 0;
  bool operator==(const ElementRun&) const = default;
};

// What two parts of one tensor have in common, in the order of the wanted one. Boxes have the same
// number of dimensions, ranges lie in their boxes.
std::vector<ElementRun> common_element_runs(const ChunkBounds& wanted_box,
                                            const ElementRange& wanted,
                                            const ChunkBounds& stored_box,
                                            const ElementRange& stored);

}  // namespace zeroth::checkpoint
