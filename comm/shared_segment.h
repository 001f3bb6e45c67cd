// Memory that ranks of one host share. It has no name in any file system: nothing is left behind
// however the processes end, and the size of /dev/shm does not matter.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "base/memory_file.h"

namespace zeroth::comm {

class SharedSegment {
 public:
  // Zeroed, `bytes` long, which nobody can change any more, with all its memory: that this is
  // lacking is an Error here, no fault later. `run` names the run among those of this user.
  static std::shared_ptr<SharedSegment> create(size_t bytes, const std::string& run = "");
  // The same memory in another process of this host (or a thread of this one), while its creator
  // has not called close(). `ticket` may come from a stranger: only memory of this user, this run
  // and this size is mapped. Throws an Error that says why it cannot be shared.
  static std::shared_ptr<SharedSegment> open(const std::string& ticket, size_t bytes,
                                             const std::string& run = "");

  // Zeroed memory of this process alone, which nobody can open.
  static std::shared_ptr<SharedSegment> create_private(size_t bytes);

  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  std::string ticket() const { return file_ ? file_->ticket() : ""; }  // what open() needs
  void close() { file_.reset(); }  // nobody will open it from here any more; the memory stays
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  SharedSegment(std::optional<MemoryFile> file, size_t size);

  std::optional<MemoryFile> file_;
  size_t size_;
  std::byte* data_;
};

}  // namespace zeroth::comm
