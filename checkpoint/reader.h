// Reads any part of any state of a checkpoint, whatever chunks it was stored in.
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

// CheckpointReader is for one thread. The first read from a chunk reads the whole chunk and checks
// its CRC; later reads fetch only their own bytes. Invalid stored bytes throw CorruptCheckpoint
// with file, tensor and slice; discard everything that was read then.
class CheckpointReader {
 public:
  // Opens the checkpoint in a directory of the file system; "" is its root. Reads the manifest.
  // Throws CorruptCheckpoint unless all files exist with their sizes.
  CheckpointReader(std::shared_ptr<FileSystem> file_system, std::string directory);
  // Opens the checkpoint in the directory `path`. Throws CorruptCheckpoint if there is none.
  static CheckpointReader open(const std::filesystem::path& path);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  const std::filesystem::path& path() const;
  const Manifest& manifest() const;
  uint32_t manifest_crc() const;

  // Returns all stored states, sorted by tensor, then by state.
  std::vector<StoredState> states() const;
  // Returns null if the state is not stored.
  const StoredState* find(const std::string& tensor, const std::string& state) const;

  // Reads the elements `range` of `slice`, row by row, in the stored dtype. `out` has exactly their
  // size. Throws an Error if a part is not stored, or if the slice exceeds the stored shape.
  void read(const std::string& tensor, const std::string& state, const TensorSlice& slice,
            const ElementRange& range, std::span<std::byte> out);

  // Reads a file without chunks by its name in the manifest. Throws CorruptCheckpoint if its bytes
  // have changed, and an Error if the file is not listed or has more than `max_bytes`.
  std::string read_text(const std::string& name, int64_t max_bytes);

  // Returns the chunks that were never read from: "exp_avg of model.norm.weight [0:64](0:64) in
  // zeroth/pieces-00001.safetensors".
  std::vector<std::string> unused() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zeroth::checkpoint
