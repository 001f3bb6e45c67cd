#include "comm/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/error.h"

namespace zeroth::comm {
namespace {

// The running kernel, which a sandbox may hide: a ticket means nothing to another one.
std::string kernel_id() {
  std::string id;
  return std::ifstream("/proc/sys/kernel/random/boot_id") >> id ? id : "hidden";
}

struct Ticket {
  std::string kernel;
  int pid = 0;
  int fd = 0;
  unsigned long long inode = 0;
  size_t size = 0;
};

// "<kernel> <pid> <fd> <inode> <bytes>"
Ticket parse(const std::string& text) {
  Ticket ticket;
  std::vector<char> kernel(text.size() + 1);
  const int fields = std::sscanf(text.c_str(), "%s %d %d %llu %zu", kernel.data(), &ticket.pid,
                                 &ticket.fd, &ticket.inode, &ticket.size);
  ZEROTH_CHECK(fields == 5, "ticket '{}'", text);
  ticket.kernel = kernel.data();
  return ticket;
}

unsigned long long inode_of(int fd) {
  struct stat status {};
  ZEROTH_CHECK(fstat(fd, &status) == 0, "fstat: {}", std::strerror(errno));
  return status.st_ino;
}

}  // namespace

SharedSegment::SharedSegment(int fd, size_t size) : fd_(fd), size_(size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    const int cause = errno;
    ::close(fd);
    throw Error("cannot map {} bytes of shared memory: {}", size, std::strerror(cause));
  }
  data_ = static_cast<std::byte*>(memory);
}

SharedSegment::~SharedSegment() {
  close();
  munmap(data_, size_);
}

std::shared_ptr<SharedSegment> SharedSegment::create(size_t bytes) {
  const int fd = memfd_create("zeroth", MFD_CLOEXEC);
  if (fd < 0) throw Error("cannot create shared memory: {}", std::strerror(errno));
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const int cause = errno;
    ::close(fd);
    throw Error("cannot create {} bytes of shared memory: {}", bytes, std::strerror(cause));
  }
  return std::shared_ptr<SharedSegment>(new SharedSegment(fd, bytes));
}

std::shared_ptr<SharedSegment> SharedSegment::open(const std::string& ticket) {
  const Ticket wanted = parse(ticket);
  if (wanted.kernel != kernel_id()) throw Error("its creator runs on another host");
  const std::string path = fmt::format("/proc/{}/fd/{}", wanted.pid, wanted.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw Error("cannot open {}: {}", path, std::strerror(errno));
  if (inode_of(fd) != wanted.inode) {
    ::close(fd);
    throw Error("{} is another process's memory: this rank has process numbers of its own", path);
  }
  return std::shared_ptr<SharedSegment>(new SharedSegment(fd, wanted.size));
}

std::string SharedSegment::ticket() const {
  ZEROTH_CHECK(fd_ >= 0, "the segment is closed");
  return fmt::format("{} {} {} {} {}", kernel_id(), getpid(), fd_, inode_of(fd_), size_);
}

void SharedSegment::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace zeroth::comm
