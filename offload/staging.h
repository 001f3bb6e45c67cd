// Transfers between a device and the CPU: buffers on one side, with the copies to them and back,
// and leases of tensors on the other side than they are stored on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "device/host_link.h"
#include "device/tensor.h"
#include "offload/shard_store.h"

namespace zeroth::offload {

// StagingBuffers leaves to its user what is copied when, in which order, and who waits for it.
class StagingBuffers {
 public:
  // Makes buffers on `side`, or in the link's host memory. If the free ones are still in use by
  // copies, makes up to `max_buffers` before it reuses one.
  StagingBuffers(std::shared_ptr<device::HostLink> link, torch::Device side, size_t max_buffers)
      : link_(std::move(link)), side_(side), max_buffers_(max_buffers) {}
  // Waits for the link's copies. Declare it as the last member, so that the memory of both ends
  // lives on.
  ~StagingBuffers() { copies().drain(); }
  StagingBuffers(const StagingBuffers&) = delete;
  StagingBuffers& operator=(const StagingBuffers&) = delete;

  struct Buffer {
    torch::Tensor memory = {};  // [bytes] uint8
    torch::Tensor values = {};  // view into memory, with the shape and dtype it was acquired for
    // Event until which it is in use: copy after it, or wait or order.
    device::StreamEvent free = {};
  };

  // Sets the minimum size of later buffers. A caller that knows its largest request avoids the wait
  // for a small buffer that must be replaced.
  void reserve(int64_t bytes) { min_bytes_ = std::max(min_bytes_, bytes); }

  // Returns the smallest free buffer that is large enough for a tensor like this one. Blocks only
  // if all are too small and one must be replaced, until that one is free.
  Buffer acquire(const torch::Tensor& like);
  // Returns a buffer to which `from`, contiguous and on the other side, is copied after `after`. It
  // is free at the copy's end.
  Buffer fetch(const torch::Tensor& from, std::vector<device::StreamEvent> after);
  // Copies the values to `to` on the other side after `after`; the buffer is free at the copy's
  // end.
  void send(Buffer& buffer, const torch::Tensor& to, const device::StreamEvent& after);
  void release(Buffer buffer) { free_.push_back(std::move(buffer)); }

  device::HostLink& link() const { return *link_; }
  device::CopyStream& copies() const { return *link_->copies; }
  int64_t bytes() const { return bytes_; }  // of all buffers, acquired ones included

 private:
  Buffer acquire_memory(int64_t bytes);

  std::shared_ptr<device::HostLink> link_;
  torch::Device side_;
  size_t max_buffers_;
  std::deque<Buffer> free_;  // in the order of their release
  size_t count_ = 0;
  int64_t bytes_ = 0;
  int64_t min_bytes_ = 0;  // of a new buffer
};

// DeferredError keeps an error that cannot be thrown, as at the end of a lease, until the next
// call.
class DeferredError {
 public:
  template <typename Body>
  void guard(Body&& body) noexcept {
    try {
      body();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  void rethrow() {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  std::exception_ptr failure_;
};

// Staging provides a device's tensors for computation on the CPU, and CPU tensors for the device.
class Staging {
 public:
  // Number of buffers on each side while their copies are in flight.
  static constexpr int64_t kMaxBuffers = 2;

  // `device` is the accelerator. If it is the CPU, as in tests, a tensor does not show which side
  // it is on, so each one is copied.
  Staging(const std::shared_ptr<device::HostLink>& link, torch::Device device)
      : always_copies_(device.is_cpu()),
        on_host_(link, torch::kCPU, kMaxBuffers),
        on_device_(link, device, kMaxBuffers) {}

  // Returns the stream that makes the copies, and orders other work after them.
  device::CopyStream& copies() { return on_host_.copies(); }

  // Announces the maximum size of a lease on `device`: see StagingBuffers::reserve().
  void reserve(torch::Device device, int64_t bytes) { buffers(device).reserve(bytes); }

  // Returns the values of `resting`, 1-D and contiguous, on `device`: the tensor itself if it is
  // stored there. Throws the failure of an earlier lease's end.
  // - A device tensor on the CPU: its read waits for `idle`, the end of the current stream's
  //   earlier work on it (copies().record_event() if in doubt). Blocks until the copy has ended.
  //   The lease's destructor writes it back after `idle`. `written` then receives the end of that
  //   copy, after which the caller must order readers; if null, the current stream waits for it.
  // - A CPU tensor on the device, kRead only: its read waits for `idle` and is ordered on the
  //   current stream; does not block. Work queued before the lease is destroyed may use it;
  //   `resting` must keep its values until the current stream has completed that work.
  ChunkLease lease(const torch::Tensor& stored, torch::Device device, Access access,
                   const device::StreamEvent& idle, device::StreamEvent* written = nullptr);

 private:
  static bool is_host(torch::Device device) { return device == torch::Device(torch::kCPU); }
  StagingBuffers& buffers(torch::Device device) { return is_host(device) ? on_host_ : on_device_; }

  bool always_copies_;
  StagingBuffers on_host_;
  StagingBuffers on_device_;
  DeferredError failure_;  // from the end of a lease; the next lease() throws it
};

}  // namespace zeroth::offload
