// Memory that ranks of one node share. It has no name in any file system: nothing is left however
// the processes end, and the size of /dev/shm does not matter.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "base/machine/memory_file.h"

namespace zeroth::comm {

class SharedSegment {
 public:
  // Creates zeroed memory of `bytes` bytes, whose size no process can change any more. All of it is
  // allocated at once: throws an Error if memory is short, so that no fault follows later. `run`
  // identifies the run among those of this user.
  static std::shared_ptr<SharedSegment> create(size_t bytes, const std::string& run = "");
  // Maps the same memory in another process of this node (or a thread of this one), as long as its
  // creator has not called close(). `ticket` may come from a stranger: only memory of this user,
  // this run and this size is mapped. Throws an Error that says why it cannot be shared.
  static std::shared_ptr<SharedSegment> open(const std::string& ticket, size_t bytes,
                                             const std::string& run = "");

  // Creates zeroed memory of this process only, which no other process can open.
  static std::shared_ptr<SharedSegment> create_private(size_t bytes);

  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  std::string ticket() const { return file_ ? file_->ticket() : ""; }  // argument of open()
  void close() { file_.reset(); }  // prevents later open() calls; the memory stays
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  SharedSegment(std::optional<MemoryFile> file, size_t size);

  std::optional<MemoryFile> file_;
  size_t size_;
  std::byte* data_;
};

}  // namespace zeroth::comm
