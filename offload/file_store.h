// A store of shards in a file on NVMe: it reads chunks ahead of their use and writes them behind
// it, through a few buffers of host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "configs/offload_config.h"
#include "device/host_link.h"
#include "offload/chunk_cache.h"
#include "offload/shard_store.h"
#include "offload/swap_file.h"

namespace zeroth::offload {

struct FileStoreOptions {
  SwapLocation place;
  configs::AioConfig aio;
  // Number of buffers, at least the number of chunks leased at a time. Each additional one can hold
  // a chunk that is read ahead or written behind.
  size_t buffers = 0;
  // Maximum bytes of a chunk, rounded up to kFileAlignment. The store uses no more than the largest
  // shard needs.
  int64_t buffer_bytes = 0;
  ChunkCacheOptions cache = {};
  // Link of the device that copies from and to the buffers.
  std::shared_ptr<device::HostLink> link = nullptr;
};

// Makes the store. The first prefetch() or acquire() of a chunk that is not empty creates the file
// and the buffers; it throws an Error with path, needed and free bytes on failure. A chunk that was
// never written is zeros and is not read. Leases are for the CPU, and each ends before the store
// does. A chunk keeps the bounds of its first use. Other bounds, unaligned chunks, and acquire()
// while all buffers are leased break an invariant.
//
// After a chunk's write has failed, every later acquire() and flush() throws that Error.
std::unique_ptr<ShardStore> make_file_store(FileStoreOptions options);

}  // namespace zeroth::offload
