// Checkpoints of tests: tensors with known values, written in any layout.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/chunk_file.h"
#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"

namespace zeroth::checkpoint {

// The value of an element: the same for everybody who knows its state and place. `salt` tells one
// save from another.
inline float value_of(const std::string& state, int64_t global, int64_t salt = 0) {
  return static_cast<float>(global * 16 + static_cast<int64_t>(state.size()) + 1000 * salt);
}

// Where an element of a part is in the whole tensor.
inline int64_t global_of(const TensorSlice& slice, int64_t element) {
  int64_t global = 0, stride = 1;
  for (size_t i = slice.shape.size(); i-- > 0;) {
    const int64_t extent = slice.sizes[i];
    global += (slice.offsets[i] + element % extent) * stride;
    element /= extent;
    stride *= slice.shape[i];
  }
  return global;
}

// Of an F32 piece.
inline std::vector<float> values_of(const TensorChunk& chunk, int64_t salt = 0) {
  std::vector<float> values;
  for (int64_t i = chunk.range.begin; i < chunk.range.end; ++i) {
    values.push_back(value_of(chunk.state, global_of(chunk.slice, i), salt));
  }
  return values;
}

inline StoredFile write_pieces(FileSystem& file_system, const std::string& directory, int64_t rank,
                               const std::vector<TensorChunk>& chunks, int64_t salt = 0) {
  const std::string name = chunk_file_name(rank);
  ChunkFile file(file_system, join_path(directory, name), chunks);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const std::vector<float> values = values_of(chunks[i], salt);
    file.write(i, std::as_bytes(std::span(values)));
  }
  return file.finish(name);
}

// A checkpoint without the protocol of a save.
inline Manifest write_checkpoint(FileSystem& file_system, const std::string& directory,
                                 const std::vector<std::vector<TensorChunk>>& ranks) {
  file_system.create_directory(directory);
  file_system.create_directory(join_path(directory, std::string(kChunkDirectory)));
  Manifest manifest{.step = 8, .run_id = "run", .attempt = "1.1"};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    manifest.files.push_back(
        write_pieces(file_system, directory, static_cast<int64_t>(rank), ranks[rank]));
  }
  write_text(file_system, join_path(directory, std::string(kManifest)), to_string(manifest));
  return manifest;
}

// Consecutive ranges of a whole tensor.
inline std::vector<TensorChunk> split(const std::string& tensor, const std::string& state,
                                      const Shape& shape, const std::vector<int64_t>& counts) {
  std::vector<TensorChunk> chunks;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    TensorChunk chunk = TensorChunk::full(tensor, state, "F32", shape);
    chunk.range = {begin, begin + count};
    begin += count;
    chunks.push_back(chunk);
  }
  return chunks;
}

}  // namespace zeroth::checkpoint
