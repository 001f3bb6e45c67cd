// Files that are read whole or mapped: regular ones only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace zeroth {

// A file open for reading. A folder, FIFO, device or socket in its place is an Error at once that
// names path and kind; nothing is read from it or waited for.
class RegularFile {
 public:
  explicit RegularFile(const std::filesystem::path& path);

  int descriptor() const { return file_.get(); }
  size_t size() const { return size_; }  // bytes, when it was opened

 private:
  FileDescriptor file_;
  size_t size_ = 0;
};

// The bytes of a file. Throws an Error that names the path and both sizes beyond `max_bytes`, or
// the path and the system's reason.
std::string read_file(const std::filesystem::path& path, size_t max_bytes);

// A whole file as read-only memory. Pages are read as they are touched. If the file shrinks
// meanwhile: base/memory_faults.h tells.
class MappedFile {
 public:
  // Throws an Error with the path and the system's reason.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  // The file as numbers; its size must be a multiple of theirs.
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  // Takes whole pages inside the range out of this process's memory; a later access reads them
  // again.
  void drop_pages(std::span<const std::byte> range) const;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace zeroth
