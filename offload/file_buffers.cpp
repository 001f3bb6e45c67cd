#include "offload/file_buffers.h"

#include <sys/mman.h>

#include <cerrno>

#include "base/machine/host_limits.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"
#include "offload/io_worker.h"

namespace zeroth::offload {

FileBuffers::FileBuffers(size_t num_buffers, size_t buffer_bytes) : buffer_bytes_(buffer_bytes) {
  ZEROTH_CHECK(num_buffers > 0 && buffer_bytes > 0 && buffer_bytes % kFileAlignment == 0,
               "{} buffers of {} bytes", num_buffers, buffer_bytes);
  size_t size = 0;
  ZEROTH_CHECK(!__builtin_mul_overflow(num_buffers, buffer_bytes, &size), "{} buffers of {} bytes",
               num_buffers, buffer_bytes);
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    const auto bytes = static_cast<int64_t>(size);
    throw OutOfHostMemory(
        bytes, fmt::format("cannot allocate {} of host memory ({} file buffers of {} bytes): {}",
                           format_bytes(bytes), num_buffers, buffer_bytes, system_reason(errno)));
  }
  // With small pages a transfer has many more segments, which halves the rate of some disks.
  ::madvise(memory, size, MADV_HUGEPAGE);
  memory_ = {static_cast<std::byte*>(memory), size};
}

FileBuffers::~FileBuffers() {
  ::munmap(memory_.data(), memory_.size());
}

}  // namespace zeroth::offload
