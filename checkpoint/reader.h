// Reads a checkpoint: any part of any state, from whatever pieces it was stored in.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tensor_chunk.h"

namespace zeroth::checkpoint {

// A state of a tensor, as it is stored.
struct StoredState {
  std::string tensor, state, dtype;
  Shape shape;
};

// For one thread. A piece is read whole the first time that any of it is wanted, and its CRC
// checked; later reads of it take only their own bytes. What is wrong with the stored bytes throws
// CorruptCheckpoint with file, tensor and box; then nothing that was read counts.
class CheckpointReader {
 public:
  // The checkpoint in a folder of the disk; "": in the disk's own. Its manifest is read, and all
  // files are there in their sizes, or it throws CorruptCheckpoint.
  CheckpointReader(std::shared_ptr<FileSystem> file_system, std::string directory);
  // The checkpoint in the folder `path`. Throws CorruptCheckpoint where there is none.
  static CheckpointReader open(const std::filesystem::path& path);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  const std::filesystem::path& path() const;
  const Manifest& manifest() const;
  uint32_t manifest_crc() const;

  // All that is stored, by tensor, then by state.
  std::vector<StoredState> states() const;
  // Null where there is none.
  const StoredState* find(const std::string& tensor, const std::string& state) const;

  // The elements `range` of `box`, row by row, in the stored dtype; `out` has exactly their bytes.
  // An Error says what is not stored, and that a box is beyond the stored shape.
  void read(const std::string& tensor, const std::string& state, const ChunkBounds& box,
            const ElementRange& range, std::span<std::byte> out);

  // A whole state. For what is small.
  std::vector<std::byte> read_whole(const std::string& tensor, const std::string& state);

  // A file without pieces, by its name in the manifest. Throws CorruptCheckpoint where its bytes
  // are others, and an Error where none is listed or it has more than `max_bytes`.
  std::string read_text(const std::string& name, int64_t max_bytes);

  // Pieces of which nothing has been read: "exp_avg of model.norm.weight [0:64](0:64) in
  // zeroth/pieces-00001.safetensors".
  std::vector<std::string> unused() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zeroth::checkpoint
