// The safetensors file format: 8 bytes of header length, a JSON header, the tensors' bytes without
// gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace zeroth::model {

struct StoredTensor {
  std::string dtype;  // as in the header: "F32", "BF16", ...
  std::vector<int64_t> shape;
  size_t begin = 0;  // bytes from the start of the file
  size_t end = 0;
};

// One file, mapped: opening reads the header only. Throws an Error that names the file, and the
// tensor where one is at fault, when the header is malformed, ranges overlap or leave gaps, or the
// file is cut short.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;
  void forget(std::span<const std::byte> range) const { file_.forget(range); }

 private:
  void check_ranges(size_t data_begin) const;

  std::filesystem::path path_;
  MappedFile file_;
  std::map<std::string, StoredTensor> tensors_;
};

// Bytes of one element of a header dtype; 0 when the dtype is not known.
size_t stored_element_size(const std::string& dtype);

}  // namespace zeroth::model
