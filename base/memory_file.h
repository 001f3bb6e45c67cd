// Files that are nothing but memory (memfd). They have no name in any file system: nobody finds
// them by a path, nothing is left behind however processes end, and no other user may open them.
#pragma once

#include <cstdint>
#include <string>

#include "base/file_descriptor.h"

namespace zeroth {

class MemoryFile {
 public:
  // Empty. `name` is what open() asks for, at most 249 bytes. Throws an Error.
  static MemoryFile create(const std::string& name);

  // The file that another process of this machine holds, for reading and writing. `ticket` may come
  // from anybody: nothing is opened but a memory file called `name` that this process's user made.
  // Throws an Error that says what the ticket names instead.
  static MemoryFile open(const std::string& ticket, const std::string& name);

  // "<kernel>:<pid>:<descriptor>:<inode>": what open() needs, while this process holds the file.
  std::string ticket() const;
  uint64_t inode() const;  // of no other memory file of this machine that somebody holds
  uint64_t size() const;

  // Sets the size and takes that memory, or throws an Error. From then on nobody changes the size:
  // a mapping of it cannot lose its pages.
  void seal_size(uint64_t bytes);
  bool has_sealed_size() const;

  int get() const { return fd_.get(); }
  void close() { fd_.close(); }

 private:
  explicit MemoryFile(FileDescriptor fd) : fd_(std::move(fd)) {}

  FileDescriptor fd_;
};

}  // namespace zeroth
