#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"
#include "offload/io_worker.h"

namespace zeroth::offload {
namespace {

constexpr size_t kMaxRegisteredBytes = size_t{1} << 30;  // the kernel's limit for one buffer
constexpr size_t kMaxRegistered = 1024;                  // the limit of older kernels
constexpr size_t kWake = ~size_t{0};
constexpr int kFile = 0;  // its index in the ring's table

class UringIoWorker : public IoWorker {
 public:
  // Takes ownership of the ring, which has depth + 1 entries and has the file registered.
  UringIoWorker(const io_uring& ring, size_t depth, std::vector<iovec> registered)
      : ring_(ring),
        depth_(depth),
        registered_(std::move(registered)),
        event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (event_.get() < 0) {
      const int error = errno;
      ::io_uring_queue_exit(&ring_);
      throw Error("cannot create an eventfd for io_uring: {}", system_reason(error));
    }
    watch_event();
  }
  ~UringIoWorker() override { ::io_uring_queue_exit(&ring_); }
  UringIoWorker(const UringIoWorker&) = delete;
  UringIoWorker& operator=(const UringIoWorker&) = delete;

  size_t depth() const override { return depth_; }

  void start(size_t index, const IoOperation& operation) override {
    io_uring_sqe* const entry = next_entry();
    const auto length = static_cast<unsigned>(operation.length);
    const int buffer = buffer_of(operation);
    if (operation.op == FileOp::kRead && buffer >= 0) {
      ::io_uring_prep_read_fixed(entry, kFile, operation.data, length, operation.offset, buffer);
    } else if (operation.op == FileOp::kRead) {
      ::io_uring_prep_read(entry, kFile, operation.data, length, operation.offset);
    } else if (buffer >= 0) {
      ::io_uring_prep_write_fixed(entry, kFile, operation.data, length, operation.offset, buffer);
    } else {
      ::io_uring_prep_write(entry, kFile, operation.data, length, operation.offset);
    }
    ::io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    ::io_uring_sqe_set_data(entry, reinterpret_cast<void*>(index));
  }

  void wait(std::vector<IoCompletion>& ended) override {
    const int error = -::io_uring_submit_and_wait(&ring_, 1);
    if (error == EAGAIN || error == EBUSY) {  // the kernel is short of memory for requests
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      ZEROTH_CHECK(error <= 0 || error == EINTR, "io_uring_enter: {}", std::strerror(error));
    }
    io_uring_cqe* completion = nullptr;
    while (::io_uring_peek_cqe(&ring_, &completion) == 0) {
      const auto index = reinterpret_cast<size_t>(::io_uring_cqe_get_data(completion));
      const IoCompletion result{index, completion->res};
      ::io_uring_cqe_seen(&ring_, completion);
      if (result.index == kWake) {
        watch_event();
      } else {
        ended.push_back(result);
      }
    }
  }

  void wake() override {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t full_is_awake = ::write(event_.get(), &one, sizeof(one));
  }

 private:
  io_uring_sqe* next_entry() {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    ZEROTH_CHECK(entry != nullptr, "more than {} operations in flight", depth_);
    return entry;
  }

  void watch_event() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t none_is_fine = ::read(event_.get(), &count, sizeof(count));
    io_uring_sqe* const entry = next_entry();
    ::io_uring_prep_poll_add(entry, event_.get(), POLLIN);
    ::io_uring_sqe_set_data(entry, reinterpret_cast<void*>(kWake));
  }

  // Returns the index of the registered buffer that contains the operation's memory, or -1.
  int buffer_of(const IoOperation& operation) const {
    auto after = std::upper_bound(
        registered_.begin(), registered_.end(), operation.data,
        [](const std::byte* data, const iovec& buffer) { return data < buffer.iov_base; });
    if (after == registered_.begin()) return -1;
    const iovec& buffer = *--after;
    const auto* const end = static_cast<const std::byte*>(buffer.iov_base) + buffer.iov_len;
    return operation.data + operation.length <= end ? static_cast<int>(after - registered_.begin())
                                                    : -1;
  }

  io_uring ring_;
  size_t depth_;
  std::vector<iovec> registered_;  // sorted by address
  FileDescriptor event_;
};

std::vector<iovec> as_buffers(const std::vector<std::span<std::byte>>& memory) {
  std::vector<iovec> buffers;
  for (const auto& region : memory) {
    for (size_t begin = 0; begin < region.size(); begin += kMaxRegisteredBytes) {
      buffers.push_back(
          {region.data() + begin, std::min(kMaxRegisteredBytes, region.size() - begin)});
    }
  }
  std::ranges::sort(buffers, {}, &iovec::iov_base);
  return buffers;
}

std::string locked_memory() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return "locked memory, ulimit -l, is " +
         (limit.rlim_cur == RLIM_INFINITY ? "unlimited"
                                          : format_bytes(static_cast<int64_t>(limit.rlim_cur)));
}

std::string registration_failure(int error, const std::vector<iovec>& buffers) {
  int64_t needed = 0;
  for (const auto& buffer : buffers) needed += static_cast<int64_t>(buffer.iov_len);
  return fmt::format(
      "{} of buffers cannot be registered with io_uring ({}; {}): they are used unregistered, "
      "which costs some speed",
      format_bytes(needed), std::strerror(error), locked_memory());
}

// Registers the buffers if the kernel allows it; returns them, or an empty list.
std::vector<iovec> register_buffers(io_uring& ring, const IoWorkerOptions& options,
                                    std::vector<std::string>& notes) {
  std::vector<iovec> buffers = as_buffers(options.registered);
  if (buffers.empty()) return {};
  const int error = buffers.size() > kMaxRegistered
                        ? E2BIG
                        : -::io_uring_register_buffers(&ring, buffers.data(),
                                                       static_cast<unsigned>(buffers.size()));
  if (error == 0) return buffers;
  notes.push_back(registration_failure(error, buffers));
  return {};
}

// Returns why the kernel refuses a ring.
std::string describe_refusal(int error) {
  std::string reason = fmt::format("io_uring: {}", system_reason(error));
  int disabled = 0;
  if (std::ifstream("/proc/sys/kernel/io_uring_disabled") >> disabled && disabled > 0) {
    reason += fmt::format(", kernel.io_uring_disabled is {}", disabled);
  } else if (error == EPERM || error == EACCES) {
    reason += ", as by a container's seccomp profile";
  } else if (error == ENOMEM) {
    reason += ", " + locked_memory();
  }
  return reason;
}

bool has_operations(io_uring& ring) {
  io_uring_probe* const probe = ::io_uring_get_probe_ring(&ring);
  const bool has = probe != nullptr && ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                   ::io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  ::io_uring_free_probe(probe);
  return has;
}

}  // namespace

std::string make_uring_worker(const IoWorkerOptions& options, IoWorkers& workers) {
  io_uring ring{};
  int error = -::io_uring_queue_init(static_cast<unsigned>(options.queue_depth + 1), &ring, 0);
  if (error != 0) return describe_refusal(error);
  error = -::io_uring_register_files(&ring, &options.descriptor, 1);
  if (error != 0 || !has_operations(ring)) {
    const std::string refusal = error != 0 ? describe_refusal(error)
                                           : "the io_uring of kernels before 5.6 is not supported";
    ::io_uring_queue_exit(&ring);
    return refusal;
  }
  std::vector<iovec> registered = register_buffers(ring, options, workers.notes);
  workers.engine = fmt::format("io_uring, queue {}{}", options.queue_depth,
                               registered.empty() ? "" : ", registered buffers");
  workers.workers.push_back(
      std::make_unique<UringIoWorker>(ring, options.queue_depth, std::move(registered)));
  return {};
}

}  // namespace zeroth::offload
