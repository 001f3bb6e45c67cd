// The one way between a device and its host: buffers on one side, copies to them and back.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "device/host_link.h"

namespace zeroth::offload {

// Who stands on this says what is copied when, in which order, and who waits for it.
class StagingBuffers {
 public:
  // Buffers on `side`, or in the link's host memory. While one that is free is still waited for, up
  // to `max_buffers` are made before it is taken again.
  StagingBuffers(std::shared_ptr<device::HostLink> link, torch::Device side, size_t max_buffers);
  // Waits for the link's copies. A user's last member: the memory of both ends stays until then.
  ~StagingBuffers() { copies().drain(); }
  StagingBuffers(const StagingBuffers&) = delete;
  StagingBuffers& operator=(const StagingBuffers&) = delete;

  struct Buffer {
    torch::Tensor memory = {};  // [bytes] uint8
    torch::Tensor values = {};  // in it: of shape and dtype of what it was taken for
    device::StreamEvent free =
        {};  // until then somebody is at it: copy behind it, or wait or order
  };

  // Buffers made from now on have at least so many bytes: who knows the largest that will be asked
  // for spares the wait for a small one that has to be replaced.
  void reserve(int64_t bytes) { min_bytes_ = std::max(min_bytes_, bytes); }

  // For a tensor like this one: of the free buffers the smallest that has room. Blocks only where
  // all are too small and one is replaced, until that one is free.
  Buffer acquire(const torch::Tensor& like);
  // One to which `from`, contiguous and of the other side, is copied behind `after`; free at the
  // copy's end.
  Buffer fetch(const torch::Tensor& from, std::vector<device::StreamEvent> after);
  // Copies the values to `to` of the other side, behind `after`; the buffer is free at the end.
  void send(Buffer& buffer, const torch::Tensor& to, const device::StreamEvent& after);
  void release(Buffer buffer) { free_.push_back(std::move(buffer)); }

  device::HostLink& link() const { return *link_; }
  device::CopyStream& copies() const { return *link_->copies; }
  int64_t bytes() const { return bytes_; }  // of all buffers, taken ones included

 private:
  Buffer acquire_memory(int64_t bytes);
  Buffer make(int64_t bytes);

  std::shared_ptr<device::HostLink> link_;
  torch::Device side_;
  size_t max_buffers_;
  std::deque<Buffer> free_;  // in the order in which they were given back
  size_t count_ = 0;
  int64_t bytes_ = 0;
  int64_t min_bytes_ = 0;  // of a buffer that is made
};

// What goes wrong where nothing may be thrown, as at the end of a lease, until the next call.
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

}  // namespace zeroth::offload
