// A file of pieces: a safetensors file in which each piece is an entry of one dimension, whose name
// is chunk_key(piece). One rank writes it. docs/checkpoint.md has the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/tensor_chunk.h"

namespace zeroth::checkpoint {

// A piece and where it lies.
struct StoredChunk {
  TensorChunk chunk;
  int64_t offset = 0;  // bytes from the begin of the file
  uint32_t crc = 0;    // CRC32C of its bytes
  bool operator==(const StoredChunk&) const = default;
};

// One file of a checkpoint; those of Hugging Face's have no pieces.
struct StoredFile {
  std::string name;  // relative to the checkpoint's folder
  int64_t size = 0;
  uint32_t crc = 0;  // CRC32C of all its bytes
  std::vector<StoredChunk> chunks = {};
  bool operator==(const StoredFile&) const = default;
};

// The safetensors header of these pieces with its length before it: the begin of the file. Pieces
// follow in this order, without gaps. Throws an Error where one is no piece or stands twice. Pure.
std::string safetensors_header(const std::vector<TensorChunk>& chunks);

// Pieces are known up front and come in any order and in parts; their CRCs are of what was handed
// over, so that each byte is looked at once. Calls for different pieces may come from several
// threads at once. After a FileSystemError the file is to be given up.
class ChunkFile {
 public:
  // `name`: of the file, relative to the disk; must not be there. Throws a FileSystemError, also
  // where the disk has no room for all of it and can tell.
  ChunkFile(FileSystem& file_system, std::string name, std::vector<TensorChunk> chunks);
  ~ChunkFile();
  ChunkFile(ChunkFile&&) noexcept;

  const std::vector<TensorChunk>& chunks() const;
  int64_t size() const;  // of the whole file

  // Behind what was written of this piece before.
  void write(size_t index, std::span<const std::byte> bytes);
  // At a byte of the piece. No byte may be written twice.
  void write_at(size_t index, int64_t offset, std::span<const std::byte> bytes);

  // All must have been written. Returns once the file is on the disk. `name` is relative to the
  // checkpoint's folder.
  StoredFile finish(std::string name);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zeroth::checkpoint
