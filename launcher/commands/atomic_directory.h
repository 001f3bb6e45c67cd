// A model's directory that appears completely or not at all.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/machine/file_descriptor.h"
#include "checkpoint/posix_file_system.h"

namespace zeroth::launcher {

// AtomicDirectory writes files to a directory beside `target`, as "out.zeroth-tmp-0a1b2c"; commit()
// renames it. After a kill `target` has either its old content or all of the new one. The temporary
// directory may remain; the next AtomicDirectory for this target removes it.
class AtomicDirectory {
 public:
  // Throws an Error if `target` exists and is not an empty directory, unless `overwrite` is set and
  // it holds nothing but a model.
  AtomicDirectory(const std::filesystem::path& target, bool overwrite);
  // Removes the directory if it is not committed.
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  checkpoint::FileSystem& file_system() { return *file_system_; }
  // Returns the path, on the disk, of a file in the new directory.
  std::string file_path(const std::string& file) const;
  const std::filesystem::path& target() const { return target_; }

  // Publishes the directory. Its files must be synced. Returns when the rename is durable.
  void commit();

 private:
  void check_target() const;
  void cleanup_leftovers() const;

  std::filesystem::path target_;  // without links
  bool overwrite_;
  std::unique_ptr<checkpoint::PosixFileSystem> file_system_;  // of the parent directory
  std::string name_;     // of the temporary directory; empty: committed or removed
  FileDescriptor lock_;  // keeps other processes from removing the directory as a leftover
};

}  // namespace zeroth::launcher
