// Regular files that are read completely, mapped, or read line by line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/machine/file_descriptor.h"

namespace zeroth {

// A RegularFile is a file open for reading. The constructor throws an Error that names path and
// type for a directory, FIFO, device or socket, without reading from it or blocking.
class RegularFile {
 public:
  explicit RegularFile(const std::filesystem::path& path);

  int descriptor() const { return file_.get(); }
  size_t size() const { return size_; }  // bytes at the time of opening

 private:
  FileDescriptor file_;
  size_t size_ = 0;
};

// Returns the bytes of a file. Throws an Error that names the path and both sizes if it exceeds
// `max_bytes`, and one with the path and the system's reason if it cannot be read.
std::string read_file(const std::filesystem::path& path, size_t max_bytes);

// Reads all of `to` from `offset` of an open file on. Throws an Error that names `path`, if the
// file ends before or cannot be read.
void read_exactly(int fd, std::span<char> to, int64_t offset, const std::filesystem::path& path);

// A MappedFile maps a whole file as read-only memory. Pages are read on first access. If the file
// shrinks meanwhile, the handler of base/machine/signals.h reports it.
class MappedFile {
 public:
  // Throws an Error with the path and the system's reason on failure.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  // Returns the file as an array of T. Its size must be a multiple of sizeof(T).
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  // Drops the full pages inside the range from this process's memory. A later access reads them
  // again.
  void drop_pages(std::span<const std::byte> range) const;

 private:
  std::span<const std::byte> bytes_;
};

// Maximum bytes of a line that are passed to a visitor. A longer line is truncated.
inline constexpr size_t kMaxLineBytes = size_t{1} << 16;

struct FileLine {
  std::string_view text;  // without "\n" or "\r\n"
  int64_t begin = 0;      // [begin, end) in the file, the "\n" included
  int64_t end = 0;
  bool whole = true;  // false: the last line of the file has no "\n"
};

// Calls `visit` for each line of a regular file in order, in little memory. Throws an Error that
// names the path and the reason.
void for_each_line(const std::filesystem::path& path,
                   const std::function<void(const FileLine&)>& visit);

// Truncates the file to its first `bytes` in one system call, so that a kill leaves it either
// unchanged or truncated. Throws an Error like for_each_line().
void truncate_file(const std::filesystem::path& path, int64_t bytes);

}  // namespace zeroth
