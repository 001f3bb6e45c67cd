// Files in memory only (memfd). They have no name in any file system. No process finds them by a
// path, nothing is left however processes exit, and no other user can open them.
#pragma once

#include <cstdint>
#include <string>

#include "base/machine/file_descriptor.h"

namespace zeroth {

// A MemoryFile owns the descriptor of a memfd.
class MemoryFile {
 public:
  // Creates an empty file. open() requires the same `name`, at most 249 bytes. Throws an Error on
  // failure.
  static MemoryFile create(const std::string& name);

  // Opens the file that another process of this machine holds, for reading and writing. `ticket`
  // may be untrusted: only a memory file with the name `name` that this process's user created is
  // opened. Throws an Error that names what the ticket refers to otherwise.
  static MemoryFile open(const std::string& ticket, const std::string& name);

  // Returns "<kernel>:<pid>:<descriptor>:<inode>" for open(). It is valid while this process holds
  // the file.
  std::string ticket() const;
  uint64_t inode() const;  // unique among the open memory files of this machine
  uint64_t size() const;

  // Sets the size and allocates the memory, or throws an Error. Seals the size, so that no process
  // can change it and a mapping cannot lose its pages.
  void seal_size(uint64_t bytes);
  bool has_sealed_size() const;

  int get() const { return fd_.get(); }
  void close() { fd_.close(); }

 private:
  explicit MemoryFile(FileDescriptor fd) : fd_(std::move(fd)) {}

  FileDescriptor fd_;
};

}  // namespace zeroth
