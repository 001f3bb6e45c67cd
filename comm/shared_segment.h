// Memory that ranks of one host share. It has no name in any file system: nothing is left behind
// however the processes end, and the size of /dev/shm does not matter.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace zeroth::comm {

class SharedSegment {
 public:
  // Zeroed, `bytes` long; pages take memory when they are first touched. Throws an Error.
  static std::shared_ptr<SharedSegment> create(size_t bytes);
  // The same memory in another process of this host (or a thread of this one), while its creator
  // has not called close(). Throws an Error that says why it cannot be shared.
  static std::shared_ptr<SharedSegment> open(const std::string& ticket);

  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  std::string ticket() const;  // what open() needs
  void close();                // nobody will open it from here any more; the memory stays
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  SharedSegment(int fd, size_t size);

  int fd_;
  size_t size_;
  std::byte* data_;
};

}  // namespace zeroth::comm
