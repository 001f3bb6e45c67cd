// Gives a device the shards of a store that leases them to the host only.
#pragma once

#include <memory>

#include "device/host_link.h"
#include "offload/shard_store.h"

namespace zeroth::offload {

struct StagingOptions {
  // Tiles that are copied to the device ahead of their use, along prefetch().
  size_t depth = 4;
  // Tiles of the inner store that are borrowed at a time at most, as long as copies can be waited
  // for instead; at least one more than the caller holds.
  size_t inner_leases = SIZE_MAX;
  // How the expected tiles will be borrowed: kRead for parameters, kReadWrite for states.
  Access expected = Access::kReadWrite;
};

// Borrowed for `device`, a tile of `inner` is copied there and, if it may have changed, back when
// the lease is destroyed; both are ordered against the current stream and do not block it nor the
// host, except that a tile which is still on its way back is waited for. Where reads are expected,
// the tile that the device wrote last is read there at once, if it is the next to be borrowed: its
// memory is the same, and a copy back goes on beside it. What uses the tensor is
// queued, or ordered, on the current stream before the lease is destroyed. Borrowed for the CPU, a
// tile is the inner store's, with all that came from the device. A tile has one lease at a time,
// unless all of them only read.
// traffic() is the inner store's; copies are told by the link.
std::unique_ptr<ShardStore> make_staging_store(std::unique_ptr<ShardStore> inner,
                                               std::shared_ptr<device::HostLink> link,
                                               torch::Device device,
                                               const StagingOptions& options = {});

}  // namespace zeroth::offload
