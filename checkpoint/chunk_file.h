// A chunk file is a safetensors file in which each chunk is an entry of one dimension, named
// chunk_key(chunk). One rank writes it. docs/checkpoint.md describes the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/tensor_chunk.h"

namespace zeroth::checkpoint {

// A StoredChunk is a chunk and its position in a file.
struct StoredChunk {
  TensorChunk chunk;
  int64_t offset = 0;  // bytes from the start of the file
  uint32_t crc = 0;    // CRC32C of the chunk's bytes
  bool operator==(const StoredChunk&) const = default;
};

// A StoredFile is one file of a checkpoint. Hugging Face's files have no chunks.
struct StoredFile {
  std::string name;  // relative to the checkpoint's directory
  int64_t size = 0;
  uint32_t crc = 0;  // CRC32C of all bytes of the file
  std::vector<StoredChunk> chunks = {};
  bool operator==(const StoredFile&) const = default;
};

// Returns the safetensors header of these chunks, preceded by its length: the start of the file.
// The chunks follow in this order without gaps. Throws an Error if one is invalid or a duplicate.
// Pure.
std::string safetensors_header(const std::vector<TensorChunk>& chunks);

// ChunkFile writes chunks that are known up front; they arrive in any order and in parts. It
// computes CRCs from the bytes that it is given, so it reads each byte once. Several threads may
// write different chunks at once. Discard the file after a FileSystemError.
class ChunkFile {
 public:
  // Creates the file `name`, relative to the file system's directory; the name must not exist.
  // Throws a FileSystemError on failure, also if the disk reports that it has no space for the
  // whole file.
  ChunkFile(FileSystem& file_system, std::string name, std::vector<TensorChunk> chunks);

  // Appends `bytes` to what is already written of this chunk.
  void write(size_t index, std::span<const std::byte> bytes);
  // Writes `bytes` at a byte offset within the chunk. No byte may be written twice.
  void write_at(size_t index, int64_t offset, std::span<const std::byte> bytes);

  // Returns after the file is on disk. All chunks must be complete. `name` is relative to the
  // checkpoint's directory.
  StoredFile finish(std::string name);

 private:
  // A WrittenRange is consecutive bytes that are written, with their CRC.
  struct WrittenRange {
    int64_t begin = 0, end = 0;
    uint32_t crc = 0;
  };
  struct ChunkProgress {
    int64_t offset = 0;  // in the file
    int64_t bytes = 0;
    int64_t next = 0;  // position of write()
    std::vector<WrittenRange> parts = {};
  };
  static std::vector<WrittenRange> merge_ranges(std::vector<WrittenRange> parts);

  std::filesystem::path path_;
  std::vector<TensorChunk> chunks_;
  std::vector<ChunkProgress> written_;  // by index in chunks_
  std::string header_;
  int64_t size_ = 0;  // of the whole file
  std::unique_ptr<WritableFile> file_;
};

}  // namespace zeroth::checkpoint
