// Files that are read whole or mapped: regular ones only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

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

// The bytes of a file. Throws an Error that names the path and both sizes beyond `most`, or the
// path and the system's reason.
std::string read_file(const std::filesystem::path& path, size_t most);

}  // namespace zeroth
