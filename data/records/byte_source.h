// The bytes of a data file, unpacked if it is compressed, piece by piece in little memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/files/regular_file.h"
#include "data/records/data_files.h"

namespace zeroth::data {

// A ByteSource reads a file from its beginning to its end. The base class reads it as it is stored.
class ByteSource {
 public:
  explicit ByteSource(const std::filesystem::path& path);
  virtual ~ByteSource() = default;

  // Returns the next bytes, which are valid until the next call; none at the end. Throws an Error
  // that names the path and the offset in the file for compressed data that is damaged, incomplete
  // or followed by anything else.
  virtual std::string_view next();

  const std::string& path() const { return path_; }
  // Return the bytes of the stored file that have been read, and all of them.
  int64_t position() const { return static_cast<int64_t>(at_); }
  int64_t size() const { return static_cast<int64_t>(file_.size()); }

 protected:
  // Returns the stored bytes at the position, of which there may be more.
  std::string_view stored() const;
  // Moves the position, and drops pages behind it from memory.
  void advance(size_t bytes);

  [[noreturn]] void throw_cut_off() const;
  [[noreturn]] void throw_damaged(const char* reason) const;
  [[noreturn]] void throw_trailing(const char* format) const;

 private:
  std::string path_;
  MappedFile file_;
  size_t at_ = 0;
  size_t dropped_ = 0;  // bytes before this offset are not in memory
};

// Opens a file that is compressed with gzip, in one or several members, or with Zstandard, in one
// or several frames, or stored as it is.
std::unique_ptr<ByteSource> open_byte_source(const std::filesystem::path& path,
                                             Compression compression);

}  // namespace zeroth::data
