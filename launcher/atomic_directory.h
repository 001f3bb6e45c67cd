// A model's folder that appears whole or not at all.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/file_descriptor.h"
#include "checkpoint/posix_file_system.h"

namespace zeroth::launcher {

// Files go to a folder beside `target`, as "out.zeroth-tmp-Ab3dEf"; commit() gives it the name. A
// kill leaves at `target` what stood there, or all of the new one, and perhaps that folder, which
// the next one removes.
class AtomicDirectory {
 public:
  // Throws an Error where `target` is not an empty folder, unless it may be overwritten and holds
  // nothing but a model.
  AtomicDirectory(const std::filesystem::path& target, bool overwrite);
  // What is not committed goes.
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  checkpoint::FileSystem& file_system() { return *file_system_; }
  // On the disk, of a file of the new folder.
  std::string file_path(const std::string& file) const;
  const std::filesystem::path& target() const { return target_; }

  // Its files are synced. Returns when the folder has its name for good.
  void commit();

 private:
  void check_target() const;
  void clear_leftovers() const;

  std::filesystem::path target_;  // without links
  bool overwrite_;
  std::unique_ptr<checkpoint::PosixFileSystem> file_system_;  // of the folder around it
  std::string name_;     // of the folder beside it; empty: none any more
  FileDescriptor lock_;  // nobody takes it for what a kill has left
};

}  // namespace zeroth::launcher
