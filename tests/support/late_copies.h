// A CopyStream between two places on the CPU that is as late, or as far out of order, as its
// contract allows: a forgotten wait, or a buffer used again too early, shows in the values; memory
// that is given back under a copy fails the test.
#pragma once

#include <doctest/doctest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "device/copy_stream.h"
#include "device/host_link.h"

namespace zeroth::testing {

// How the host's and the device's CPU are told apart where a device is named.
inline const torch::Device kFakeDevice{torch::kCPU, 0};

class LateCopies final : public device::CopyStream {
 public:
  // With seed 0 a copy is done when somebody waits for it, else at any time.
  explicit LateCopies(uint64_t seed = 0) : random_(seed), only_when_waited_for_(seed == 0) {}
  ~LateCopies() override { LateCopies::drain(); }

  device::StreamEvent record_event() override { return {}; }  // the CPU has always done all

  device::StreamEvent copy(const torch::Tensor& to, const torch::Tensor& from,
                           const std::vector<device::StreamEvent>& after) override {
    REQUIRE(to.is_contiguous());
    REQUIRE(from.is_contiguous());
    REQUIRE((to.scalar_type() == from.scalar_type()));
    REQUIRE(to.numel() == from.numel());
    auto copy = std::make_shared<Copy>(Copy{Place(to), Place(from), to.nbytes(), after});
    waiting_.push_back(copy);
    ++copies_;
    if (!only_when_waited_for_) {
      for (auto left = random_() % 3; left > 0 && !waiting_.empty(); --left) {
        perform(*std::vector(waiting_)[random_() % waiting_.size()]);
      }
    }
    return copy;
  }
  void wait_event(const device::StreamEvent& point) override { end(point); }
  void wait(const device::StreamEvent& point) override {
    if (!is_complete(point)) ++waits_;
    end(point);
  }
  bool is_complete(const device::StreamEvent& point) override {
    return !point || std::static_pointer_cast<Copy>(point)->done;
  }
  void drain() noexcept override {
    while (!waiting_.empty()) perform(*std::shared_ptr(waiting_.front()));
  }

  int copies() const { return copies_; }
  int waits() const { return waits_; }  // of the host, for copies that were under way
  size_t under_way() const { return waiting_.size(); }

 private:
  // Memory that others keep.
  class Place {
   public:
    explicit Place(const torch::Tensor& tensor)
        : storage_(tensor.storage().getWeakStorageImpl()),
          begin_(tensor.storage().data()),
          data_(tensor.data_ptr()) {}
    bool there() const {
      const auto storage = storage_.lock();
      return storage && storage->data() == begin_;
    }
    void* data() const { return data_; }

   private:
    c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
    const void* begin_;
    void* data_;
  };

  struct Copy {
    Place to, from;
    size_t bytes = 0;
    std::vector<device::StreamEvent> after;
    bool done = false;
  };

  void end(const device::StreamEvent& point) {
    if (point) perform(*std::static_pointer_cast<Copy>(point));
  }
  void perform(Copy& copy) {
    if (copy.done) return;
    for (const device::StreamEvent& point : copy.after) end(point);
    copy.done = true;
    if (!copy.to.there() || !copy.from.there()) {
      FAIL_CHECK("memory was given back while a copy was under way");
    } else if (copy.bytes > 0) {
      std::memcpy(copy.to.data(), copy.from.data(), copy.bytes);
    }
    copy.after.clear();
    std::erase_if(waiting_, [&](const auto& other) { return other.get() == &copy; });
  }

  std::mt19937_64 random_;
  bool only_when_waited_for_;
  std::vector<std::shared_ptr<Copy>> waiting_;
  int copies_ = 0, waits_ = 0;
};

inline std::shared_ptr<device::HostLink> late_link(uint64_t seed = 0) {
  return std::make_shared<device::HostLink>(
      device::HostLink{device::HostMemory(), std::make_unique<LateCopies>(seed)});
}

inline LateCopies& copies_of(device::HostLink& link) {
  return dynamic_cast<LateCopies&>(*link.copies);
}

}  // namespace zeroth::testing
