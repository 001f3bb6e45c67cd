// Snapshot: saves a rank's state as it is between two steps while training continues. A thread
// writes block by block; an update copies each block that it reaches before the thread does.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/host_link.h"
#include "device/tensor.h"
#include "engine/state/run_state.h"
#include "engine/state/state_blocks.h"
#include "zero/sharded_optimizer.h"

namespace zeroth::engine {

// Returns the default limit, in bytes, of the copies that a save of `bytes_to_save` may hold at a
// time.
int64_t snapshot_memory(int64_t bytes_to_save);

// SnapshotMemory allocates buffers for copies from slabs, which it creates as needed and keeps for
// the next save. Page-locking a slab takes one call, for any number of buffers.
class SnapshotMemory {
 public:
  // `device` is where the source values may be; the buffers' CPU memory is page-locked if that is a
  // GPU.
  SnapshotMemory(torch::Device device, int64_t max_bytes);

  int64_t max_bytes() const { return max_bytes_; }
  // Returns the maximum bytes of one buffer. Several fit, so that some are filled while others are
  // written.
  int64_t max_buffer_bytes() const {
    return std::clamp(max_bytes_ / 4, int64_t{256}, int64_t{4} << 20);
  }
  // Returns whether a buffer of `bytes` is available; always true if no buffer is in use.
  bool has_room(int64_t bytes) const;
  torch::Tensor acquire(int64_t bytes);  // [bytes] uint8; requires has_room()
  void release(torch::Tensor buffer);
  // Returns the link between the device and the CPU; null if the device is the CPU.
  device::HostLink* link() const { return link_.get(); }

 private:
  struct Slab {
    torch::Tensor memory;             // [bytes] uint8
    std::map<int64_t, int64_t> free;  // begin: end
  };

  // Returns the first free range of at least `bytes`: slab and begin; nullopt if there is none.
  std::optional<std::pair<size_t, int64_t>> find(int64_t bytes) const;
  // Returns the bytes of the next slab.
  int64_t next_slab() const;

  std::shared_ptr<device::HostLink> link_;
  device::HostMemory memory_;
  int64_t max_bytes_;
  int64_t used_bytes_ = 0, slab_bytes_ = 0;
  std::vector<Slab> slabs_;
};

// Snapshot's thread itself reads values in plain CPU memory. The training thread copies values on a
// GPU or in a file when an update acquires them, and at the end those that no update reached.
class Snapshot final : public zero::OverwriteObserver {
 public:
  // `held` has no pending updates. The thread calls `sink`, and `finish` after the last value. All
  // arguments must outlive the snapshot; `memory` must not be used by others meanwhile.
  Snapshot(const ShardedState& held, StateSink& sink, std::function<void()> finish,
           SnapshotMemory& memory);
  // Abandons what is not written.
  ~Snapshot() override;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Only the training thread calls the methods below.

  void before_update(size_t unit, const zero::Range& tile,
                     const std::vector<torch::Tensor>& arrays) override;
  // Copies blocks that no update reaches, as far as there is room. Called between two steps.
  void copy_remaining();
  // Returns whether the thread has finished, or failed.
  bool ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  // Blocks until the thread has ended. Returns its failure, if any. No update may be pending: see
  // apply_pending_updates().
  std::optional<std::string> wait();

  // Returns the seconds spent in the calls above, copies included.
  double waited_seconds() const { return waited_seconds_; }
  // Returns the thread's seconds, once it has ended, without its waits for copies by the training
  // thread.
  double writing_seconds() {
    const std::lock_guard lock(mutex_);
    return writing_seconds_;
  }

 private:
  enum class BlockState {
    kPending,  // not saved yet; the values are in their store
    kCopying,
    kCopied,
    kWriting,  // from the store or the copy
    kWritten
  };
  struct SnapshotBlock {
    StateBlock what;
    torch::Tensor in_place;     // defined: the thread may read the values there
    torch::Tensor buffer = {};  // defined: holds the copy, or will hold it
    BlockState state = BlockState::kPending;
    torch::Tensor copy() const { return buffer.view(what.dtype); }
  };

  // Called by the snapshot's thread.
  void run();
  std::optional<size_t> next();
  void written(size_t block);

  // Called by the training thread.
  bool claim(size_t block);
  void copy_block(size_t block, const torch::Tensor& tile);
  bool is_pending(size_t block);
  void copied(size_t block);
  // Publishes finished copies from the device; waits for the first unfinished one if
  // `wait_for_first`.
  void finish_copies(bool wait_for_first);

  const ShardedState held_;
  StateSink& sink_;
  const std::function<void()> finish_;
  SnapshotMemory& memory_;
  std::map<std::pair<size_t, int64_t>, std::pair<size_t, size_t>> tiles_;  // (unit, begin): blocks
  std::vector<size_t> not_in_place_;  // blocks that the thread cannot read in place
  std::deque<std::pair<size_t, device::StreamEvent>> arriving_;
  double waited_seconds_ = 0;
  double idle_seconds_ = 0;  // of the thread

  std::mutex mutex_;  // guards all that follows, and memory_
  std::condition_variable changed_;
  std::vector<SnapshotBlock> blocks_;
  std::deque<size_t> copies_;  // ready to be written
  size_t next_in_place_ = 0;   // earlier blocks are not pending, or not readable in place
  size_t remaining_ = 0;       // blocks not written yet
  bool stop_requested_ = false;
  bool ended_ = false;
  double writing_seconds_ = 0;
  std::optional<std::string> failure_;
  std::thread thread_;
};

}  // namespace zeroth::engine
