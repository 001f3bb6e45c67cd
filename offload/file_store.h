// Shards that rest in a file on NVMe: tiles are read ahead of their use and written behind it,
// through a few buffers of host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "configs/offload_config.h"
#include "device/host_link.h"
#include "offload/shard_store.h"
#include "offload/swap_file.h"

namespace zeroth::offload {

struct FileStoreOptions {
  SwapLocation place;
  configs::AioConfig aio;
  // At least as many as tiles are borrowed at a time; each beyond that is a tile read ahead or
  // written behind.
  size_t buffers = 0;
  // A tile has at most so many; rounded up to kFileAlignment. No more are taken than the largest
  // shard has.
  int64_t buffer_bytes = 0;
  bool pipeline_read = true;   // else a tile is read when it is borrowed
  bool pipeline_write = true;  // else its release waits until it is written
  std::shared_ptr<device::HostLink> link =
      nullptr;  // of the device that copies from and to the buffers
};

// The file and the buffers are made at the first prefetch() or acquire() of a tile that is not
// empty, which may throw an Error with path, needed and free bytes. A tile that was never written
// is zeros and not read. Leases are for the CPU, and each ends before the store does. A tile is
// borrowed as it was cut the first time; other cuts and tiles off the grid are broken invariants,
// and so is a borrow while all buffers are borrowed.
//
// When a tile could not be written, every later acquire() and flush() throws that Error.
std::unique_ptr<ShardStore> make_file_store(FileStoreOptions options);

}  // namespace zeroth::offload
