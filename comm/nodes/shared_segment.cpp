#include "comm/nodes/shared_segment.h"

#include <sys/mman.h>

#include <cerrno>

#include "base/error.h"
#include "base/machine/process_limits.h"

namespace zeroth::comm {
namespace {

// A memory file's name has at most 249 bytes; truncating a long address can only make two runs of
// one user look alike.
std::string memory_file_name(const std::string& run) {
  return ("zeroth:" + run).substr(0, 249);
}

}  // namespace

SharedSegment::SharedSegment(std::optional<MemoryFile> file, size_t size)
    : file_(std::move(file)), size_(size) {
  const int flags = file_ ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, file_ ? file_->get() : -1, 0);
  if (memory == MAP_FAILED)
    throw Error("cannot map {} bytes of shared memory: {}", size, system_reason(errno));
  data_ = static_cast<std::byte*>(memory);
}

SharedSegment::~SharedSegment() {
  munmap(data_, size_);
}

std::shared_ptr<SharedSegment> SharedSegment::create(size_t bytes, const std::string& run) {
  MemoryFile file = MemoryFile::create(memory_file_name(run));
  file.seal_size(bytes);
  return std::shared_ptr<SharedSegment>(new SharedSegment(std::move(file), bytes));
}

std::shared_ptr<SharedSegment> SharedSegment::create_private(size_t bytes) {
  return std::shared_ptr<SharedSegment>(new SharedSegment(std::nullopt, bytes));
}

std::shared_ptr<SharedSegment> SharedSegment::open(const std::string& ticket, size_t bytes,
                                                   const std::string& run) {
  MemoryFile file = MemoryFile::open(ticket, memory_file_name(run));
  if (file.size() != bytes)
    throw Error("the shared memory has {} bytes, but {} were agreed on", file.size(), bytes);
  if (!file.has_sealed_size()) throw Error("the shared memory could shrink: it is not sealed");
  return std::shared_ptr<SharedSegment>(new SharedSegment(std::move(file), bytes));
}

}  // namespace zeroth::comm
