// The safetensors file format (8 bytes of header length, a JSON header, the tensors' bytes without
// gaps) and a directory of such files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files/regular_file.h"

namespace zeroth::model {

struct StoredTensor {
  std::string dtype;  // as in the header: "F32", "BF16", ...
  std::vector<int64_t> shape;
  size_t begin = 0;  // bytes from the start of the file
  size_t end = 0;
};

// A SafetensorsFile maps one file into memory; opening reads the header only. Throws an Error that
// names the file, and the tensor at fault if there is one, when the header is malformed, ranges
// overlap or leave gaps, or the file is truncated.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;
  void drop_pages(std::span<const std::byte> range) const { file_.drop_pages(range); }

 private:
  void check_ranges(size_t data_begin) const;

  std::filesystem::path path_;
  MappedFile file_;
  std::map<std::string, StoredTensor> tensors_;
};

class SafetensorsDirectory {
 public:
  struct FileTensor {
    const SafetensorsFile* file;
    const StoredTensor* tensor;
  };

  // Opens every file. Throws an Error when a shard is missing or misses a tensor that the index
  // assigns to it, when two shards hold one name, or when there are no weights.
  explicit SafetensorsDirectory(const std::filesystem::path& directory);

  const std::map<std::string, FileTensor>& entries() const { return entries_; }
  const std::filesystem::path& directory() const { return directory_; }

 private:
  void open(const std::filesystem::path& path);

  std::filesystem::path directory_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, FileTensor> entries_;
};

// Returns whether the directory holds safetensors weights. Throws an Error when it holds weights in
// other formats only.
bool has_weights(const std::filesystem::path& directory);

}  // namespace zeroth::model
