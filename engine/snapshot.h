// Saves what a rank holds at the edge of a step while training goes on: a thread writes block by
// block, and an update that comes to a block before the thread has a copy of it made first.
#pragma once

#include <torch/types.h>

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
#include "engine/run_state.h"
#include "engine/state_blocks.h"
#include "zero/overwrite_observer.h"

namespace zeroth::engine {

// Bytes of copies that a save of so many bytes may make at a time, where nobody asks for another
// limit.
int64_t snapshot_memory(int64_t bytes_to_save);

// Buffers for copies, cut from slabs that are made as they are needed and kept for the next save:
// to page-lock a slab takes one call, whatever the number of its buffers.
class SnapshotMemory {
 public:
  // `device`: where what is copied may lie; its host memory is page-locked then.
  SnapshotMemory(torch::Device device, int64_t max_bytes);

  int64_t max_bytes() const { return max_bytes_; }
  // Of one that is asked for at most, so that some are filled while others are written.
  int64_t max_buffer_bytes() const {
    return std::clamp(max_bytes_ / 4, int64_t{256}, int64_t{4} << 20);
  }
  // Always where no buffer is taken.
  bool has_room(int64_t bytes) const;
  torch::Tensor acquire(int64_t bytes);  // [bytes] uint8; there is room
  void release(torch::Tensor buffer);
  // Between the device and its host; null where these are one.
  device::HostLink* link() const { return link_.get(); }

 private:
  struct Slab {
    torch::Tensor memory;             // [bytes] uint8
    std::map<int64_t, int64_t> free;  // begin: end
  };

  // The first free range of so many bytes, if there is one.
  std::optional<std::pair<size_t, int64_t>> find(int64_t bytes) const;
  // Of the slab that would be made next.
  int64_t next_slab() const;

  std::shared_ptr<device::HostLink> link_;
  device::HostMemory memory_;
  int64_t max_bytes_;
  int64_t used_bytes_ = 0, slab_bytes_ = 0;
  std::vector<Slab> slabs_;
};

// The thread reads what rests in plain memory of the CPU itself. What rests on a GPU or in a file
// the training thread hands over when an update lends it, and at the end what none came to.
class Snapshot final : public zero::OverwriteObserver {
 public:
  // `held` is up to date. The thread calls `sink`, and `finish` behind the last value. All of them
  // stay as long as the snapshot; nobody else uses `memory` meanwhile.
  Snapshot(const ShardedState& held, StateSink& sink, std::function<void()> finish,
           SnapshotMemory& memory);
  // Leaves what is not written.
  ~Snapshot() override;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // The methods below are the training thread's.

  void before_update(size_t unit, const zero::Range& tile,
                     const std::vector<torch::Tensor>& arrays) override;
  // Hands over what no update comes to, as far as there is room. Between two steps.
  void copy_remaining();
  // Whether the thread has finished, or failed.
  bool ended();
  // Waits until it has. Returns why it failed, if it did. What waits for an update must not be
  // left: see apply_pending_updates().
  std::optional<std::string> wait();

  // Seconds in the calls above, those of copies included.
  double waited_seconds() const { return waited_seconds_; }
  // Once it has ended: of the thread, without its waiting for what updates are to hand over.
  double writing_seconds();

 private:
  enum class BlockState {
    kPending,  // as it was, where it rests
    kCopying,
    kCopied,
    kWriting,  // from either place
    kWritten
  };
  struct SnapshotBlock {
    StateBlock what;
    torch::Tensor in_place;     // defined: the thread may read it there
    torch::Tensor buffer = {};  // defined: its copy is there, or will be
    BlockState state = BlockState::kPending;
    torch::Tensor copy() const;
  };

  // Of the thread.
  void run();
  void write_all();
  std::optional<size_t> next();
  bool can_proceed() const;
  void written(size_t block);

  // Of the training thread.
  bool claim(size_t block);
  void copy_block(size_t block, const torch::Tensor& tile);
  void copy_remaining(size_t block);
  bool is_pending(size_t block);
  void copied(size_t block);
  // Looks after copies from the device; waits for the first one that has not come.
  void finish_copies(bool wait_for_first);

  const ShardedState held_;
  StateSink& sink_;
  const std::function<void()> finish_;
  SnapshotMemory& memory_;
  std::map<std::pair<size_t, int64_t>, std::pair<size_t, size_t>> tiles_;  // (unit, begin): blocks
  std::vector<size_t> not_in_place_;  // blocks that cannot be read in place
  std::deque<std::pair<size_t, device::StreamEvent>> arriving_;
  double waited_seconds_ = 0;
  double idle_seconds_ = 0;  // the thread's

  std::mutex mutex_;  // of all that follows, and of memory_
  std::condition_variable changed_;
  std::vector<SnapshotBlock> blocks_;
  std::deque<size_t> copies_;  // to be written
  size_t next_in_place_ = 0;   // no block before it rests and can be read in place
  size_t remaining_ = 0;       // not written
  bool stop_requested_ = false;
  bool ended_ = false;
  double writing_seconds_ = 0;
  std::optional<std::string> failure_;
  std::thread thread_;
};

}  // namespace zeroth::engine
