// One run at a time for an output.
#pragma once

#include <filesystem>
#include <string>

#include "base/folder.h"

namespace zeroth {

// A locked file beside the output, "out.zeroth-lock", which says who writes there. It goes with
// this object. What a kill leaves of it is locked by nobody, and the next run's: the lock is the
// kernel's and ends with its process.
class OutputLock {
 public:
  // Throws an Error when another process holds the lock of `target`: with its number, its host and
  // since when. Leaves everything as it is.
  static void require_free(const std::filesystem::path& target);

  // Makes the folders above it too. Throws as require_free(), and when the file cannot be made.
  explicit OutputLock(const std::filesystem::path& target);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

  // Why another run would not notice this one; empty where it would.
  const std::string& note() const { return note_; }

 private:
  std::string path() const;
  bool open_file(const std::filesystem::path& target);
  bool take(const std::filesystem::path& target);
  bool stands() const;
  void write_holder() const;

  Folder folder_;
  std::string name_;
  FileDescriptor file_;
  std::string note_;
};

}  // namespace zeroth
