// Gives a device access to the shards of a store that leases them to the CPU only.
#pragma once

#include <memory>

#include "device/host_link.h"
#include "offload/shard_store.h"

namespace zeroth::offload {

struct StagingOptions {
  // Maximum number of chunks that are copied to the device ahead of their use, along prefetch().
  size_t depth = 4;
  // Maximum number of inner leases at a time, as long as waiting for copies can free one; at least
  // one more than the caller holds.
  size_t inner_leases = SIZE_MAX;
  // Access of the prefetched chunks: kRead for parameters, kReadWrite for states.
  Access expected = Access::kReadWrite;
};

// Makes a store that copies a chunk of `inner` to `device` when it is acquired there and, if it was
// acquired to write, back when the lease is destroyed. Both copies are ordered against the current
// stream and block neither it nor the CPU, except that acquire() waits for a chunk whose copy back
// is in flight. If reads are expected and the next acquired chunk is the one that the device wrote
// last, the device reads it in the same memory at once, while it is still being copied back. Work
// that uses the tensor must be queued, or ordered, on the current stream before the lease is
// destroyed. A lease for the CPU is the inner store's, and includes all changes by the device. A
// chunk has one lease at a time, unless all of them only read.
// Its traffic() is the inner store's; the link's statistics count the copies.
std::unique_ptr<ShardStore> make_staging_store(std::unique_ptr<ShardStore> inner,
                                               std::shared_ptr<device::HostLink> link,
                                               torch::Device device,
                                               const StagingOptions& options = {});

}  // namespace zeroth::offload
