// Memory of the devices that do not exist, given out as LibTorch's allocator does for a GPU:
// memory that the host gives back goes to the next who asks for it on the same stream, while
// earlier work may still be queued. What was given back is overwritten, in its turn on the stream.
// The host that follows an address of the device gets a fault, as on a GPU.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tests/simulated_gpu/devices.h"
#include "tests/simulated_gpu/timeline.h"

namespace zeroth::simulated {

class DeviceMemory {
 public:
  static constexpr size_t kTotalBytes = size_t{4} << 30;  // of a device

  static DeviceMemory& get();

  // Of the stream's device. Null for no bytes. Aligned to 512 bytes. Throws when all is given out.
  void* take(size_t bytes, StreamNumber stream);
  void give(void* memory);
  // `stream` uses it too: given back, it waits for what is queued there by then.
  void also_used_on(void* memory, StreamNumber stream);

  // Where work, which runs on the host, finds what the device has at this address.
  void* for_work(void* memory) const;

  int64_t live_bytes(int device) const { return of(device).live_bytes; }
  int64_t peak_bytes(int device) const { return of(device).peak_bytes; }

 private:
  DeviceMemory();
  struct Block {
    size_t bytes = 0;  // a power of two
    StreamNumber stream = kDefaultStream;
    std::vector<StreamNumber> others = {};
  };
  struct Waiting {
    void* memory;
    std::vector<Timeline::Mark> until;
  };
  struct Use {
    size_t cut_bytes = 0;  // of the device's addresses, into blocks
    std::atomic<int64_t> live_bytes = 0, peak_bytes = 0;
  };
  const Use& of(int device) const { return uses_[static_cast<size_t>(device)]; }

  void release(void* memory);
  void release_those_that_waited();

  // Of the addresses of all devices, one device after the other. Work finds what is there behind
  // those of the last one.
  std::byte* begin_;
  std::array<Use, kMaxDevices> uses_;
  std::map<void*, Block> blocks_;  // all that there are
  std::map<std::pair<StreamNumber, size_t>, std::vector<void*>> free_;
  std::vector<Waiting> waiting_;
};

}  // namespace zeroth::simulated
