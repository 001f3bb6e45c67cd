// Atomic replacement of a file: a reader sees the complete old or the complete new contents.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/files/output_lock.h"
#include "base/machine/file_descriptor.h"

namespace zeroth {

// A TemporaryFile is "path.part", which commit() renames to `path`. The destructor removes a file
// that was not renamed.
class TemporaryFile {
 public:
  // Creates it in place of another file of this name. Throws an Error that names the path and the
  // system's reason, as the other functions do.
  explicit TemporaryFile(const std::filesystem::path& path);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  // Open for writing, as long as this object exists: the kernel could use the file's inode number
  // again after it is closed.
  const FileDescriptor& descriptor() const { return file_; }
  // Throws an Error if another process has replaced the file with its own.
  void commit();

 private:
  void remove() const;

  std::filesystem::path path_;
  std::string temporary_path_;
  FileDescriptor file_;
  bool committed_ = false;
};

// Writes "path.part" and renames it to `path`. Follows no link at either path. Throws an Error that
// names the path and the system's reason. Calls `guard` before it creates anything and again just
// before the rename; if `guard` throws, passes its exception on and keeps the old file.
void replace_file(const std::filesystem::path& path, std::string_view text,
                  const OutputGuard& guard = {});

}  // namespace zeroth
