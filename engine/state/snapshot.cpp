#include "engine/state/snapshot.h"

#include <ATen/Parallel.h>

#include "base/machine/parallel.h"
#include "base/machine/timer.h"
#include "checkpoint/rank_group.h"

namespace zeroth::engine {
namespace {

constexpr int64_t kMinMemory = int64_t{64} << 20;
constexpr int64_t kSlabBytes = int64_t{256} << 20;

// Returns the size of a buffer in its slab, aligned for values of any type.
int64_t align_to_slab(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

int64_t snapshot_memory(int64_t bytes_to_save) {
  return std::min(bytes_to_save, std::max(kMinMemory, bytes_to_save / 4));
}

SnapshotMemory::SnapshotMemory(torch::Device device, int64_t max_bytes)
    : link_(device.is_cpu() ? nullptr : device::make_host_link(device, /*pin_memory=*/true)),
      memory_(link_ ? link_->memory : device::HostMemory()),
      max_bytes_(max_bytes) {}

std::optional<std::pair<size_t, int64_t>> SnapshotMemory::find(int64_t bytes) const {
  for (size_t slab = 0; slab < slabs_.size(); ++slab) {
    for (const auto& [begin, end] : slabs_[slab].free)
      if (end - begin >= align_to_slab(bytes)) return std::pair(slab, begin);
  }
  return std::nullopt;
}

int64_t SnapshotMemory::next_slab() const {
  return std::min(kSlabBytes, max_bytes_ - slab_bytes_);
}

bool SnapshotMemory::has_room(int64_t bytes) const {
  return used_bytes_ == 0 || find(bytes) || next_slab() >= align_to_slab(bytes);
}

torch::Tensor SnapshotMemory::acquire(int64_t bytes) {
  auto place = find(bytes);
  if (!place) {
    if (next_slab() < align_to_slab(bytes)) {  // no buffer is in use, and no slab is large enough
      slabs_.clear();
      slab_bytes_ = 0;
    }
    const int64_t size = std::max(next_slab(), align_to_slab(bytes));
    slabs_.push_back({memory_.zeros(size, torch::kByte), {{0, size}}});
    slab_bytes_ += size;
    place = {slabs_.size() - 1, 0};
  }
  Slab& slab = slabs_[place->first];
  const int64_t begin = place->second, end = slab.free.at(begin);
  slab.free.erase(begin);
  if (begin + align_to_slab(bytes) < end) slab.free[begin + align_to_slab(bytes)] = end;
  used_bytes_ += align_to_slab(bytes);
  return slab.memory.narrow(0, begin, bytes);
}

void SnapshotMemory::release(torch::Tensor buffer) {
  const auto slab = std::find_if(slabs_.begin(), slabs_.end(),
                                 [&](const Slab& one) { return one.memory.is_alias_of(buffer); });
  const int64_t begin = buffer.storage_offset(), bytes = align_to_slab(buffer.numel());
  const auto range = slab->free.emplace(begin, begin + bytes).first;
  const auto next = std::next(range);
  if (next != slab->free.end() && next->first == range->second) {
    range->second = next->second;
    slab->free.erase(next);
  }
  if (range != slab->free.begin() && std::prev(range)->second == begin) {
    std::prev(range)->second = range->second;
    slab->free.erase(range);
  }
  used_bytes_ -= bytes;
}

Snapshot::Snapshot(const ShardedState& held, StateSink& sink, std::function<void()> finish,
                   SnapshotMemory& memory)
    : held_(held), sink_(sink), finish_(std::move(finish)), memory_(memory) {
  const torch::NoGradGuard no_grad;
  for (StateBlock& block : blocks_to_save(held, memory.max_buffer_bytes())) {
    const auto [tile, is_new] =
        tiles_.try_emplace({block.unit, block.tile.begin}, blocks_.size(), blocks_.size());
    tile->second.second = blocks_.size() + 1;
    const torch::Tensor there = in_place(held, block);
    if (!there.defined()) not_in_place_.push_back(blocks_.size());
    blocks_.push_back({std::move(block), there});
  }
  remaining_ = blocks_.size();
  thread_ = std::thread([this] { run(); });
}

Snapshot::~Snapshot() {
  {
    const std::lock_guard lock(mutex_);
    stop_requested_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (!arriving_.empty()) memory_.link()->copies->drain();
  for (SnapshotBlock& block : blocks_) {
    if (block.buffer.defined()) memory_.release(std::move(block.buffer));
  }
}

void Snapshot::run() {
  const torch::NoGradGuard no_grad;
  (void)at::get_num_threads();
  set_single_threaded();  // the other CPUs compute
  double seconds = 0;
  const auto failure = checkpoint::capture_failure([&] {
    const ScopedTimer timer(seconds);
    sink_.begin(slices_to_save(held_));
    while (const auto block = next()) {
      const SnapshotBlock& own = blocks_[*block];
      own.what.write(own.buffer.defined() ? own.copy() : own.in_place, sink_);
      written(*block);
    }
    if (remaining_ == 0) finish_();  // no other thread changes it
  });
  {
    const std::lock_guard lock(mutex_);
    writing_seconds_ = seconds - idle_seconds_;
    ended_ = true;
    if (!failure_) failure_ = failure;
  }
  changed_.notify_all();
}

// Returns the next block to write: copies first, as updates may wait for their memory.
std::optional<size_t> Snapshot::next() {
  std::unique_lock lock(mutex_);
  const auto passes = [&](const SnapshotBlock& block) {
    return block.state != BlockState::kPending || !block.in_place.defined();
  };
  const auto ready = [&] {
    while (next_in_place_ < blocks_.size() && passes(blocks_[next_in_place_])) ++next_in_place_;
    return stop_requested_ || remaining_ == 0 || !copies_.empty() ||
           next_in_place_ < blocks_.size();
  };
  {
    const ScopedTimer timer(idle_seconds_);
    changed_.wait(lock, ready);
  }
  if (stop_requested_ || remaining_ == 0) return std::nullopt;
  size_t block = next_in_place_;
  if (!copies_.empty()) {
    block = copies_.front();
    copies_.pop_front();
  }
  blocks_[block].state = BlockState::kWriting;
  return block;
}

void Snapshot::written(size_t block) {
  {
    const std::lock_guard lock(mutex_);
    SnapshotBlock& own = blocks_[block];
    if (own.buffer.defined()) memory_.release(std::exchange(own.buffer, {}));
    own.state = BlockState::kWritten;
    --remaining_;
  }
  changed_.notify_all();
}

// Returns whether the caller must copy the block, with a buffer for it. Otherwise its values are no
// longer needed.
bool Snapshot::claim(size_t block) {
  std::unique_lock lock(mutex_);
  SnapshotBlock& own = blocks_[block];
  while (!ended_ && !stop_requested_) {
    if (own.state != BlockState::kPending && own.state != BlockState::kWriting) return false;
    if (own.state == BlockState::kWriting && own.buffer.defined()) return false;
    if (own.state == BlockState::kPending && memory_.has_room(own.what.bytes())) {
      own.buffer = memory_.acquire(own.what.bytes());
      own.state = BlockState::kCopying;
      return true;
    }
    if (arriving_.empty()) {
      changed_.wait(lock);
      continue;
    }
    lock.unlock();
    finish_copies(/*wait_for_first=*/true);
    lock.lock();
  }
  return false;
}

void Snapshot::copied(size_t block) {
  {
    const std::lock_guard lock(mutex_);
    blocks_[block].state = BlockState::kCopied;
    copies_.push_back(block);
  }
  changed_.notify_all();
}

void Snapshot::finish_copies(bool wait_for_first) {
  for (; !arriving_.empty(); arriving_.pop_front()) {
    const auto& [block, point] = arriving_.front();
    device::CopyStream& copies = *memory_.link()->copies;
    if (!copies.is_complete(point)) {
      if (!wait_for_first) return;
      copies.wait(point);
      wait_for_first = false;
    }
    copied(block);
  }
}

// Copies the block from `tile`, the values of its tile.
void Snapshot::copy_block(size_t block, const torch::Tensor& tile) {
  if (!claim(block)) return;
  const SnapshotBlock& own = blocks_[block];
  const torch::Tensor from = own.what.of_tile(tile);
  const torch::Tensor to = own.copy();
  if (from.is_cpu()) {
    to.copy_(from);
    return copied(block);
  }
  device::CopyStream& copies = *memory_.link()->copies;
  arriving_.emplace_back(block, copies.copy(to, from, {copies.record_event()}));
  copies.wait_event(arriving_.back().second);
}

void Snapshot::before_update(size_t unit, const zero::Range& tile,
                             const std::vector<torch::Tensor>& arrays) {
  const auto found = tiles_.find({unit, tile.begin});
  if (found == tiles_.end()) return;
  const ScopedTimer timer(waited_seconds_);
  finish_copies(/*wait_for_first=*/false);
  for (size_t block = found->second.first; block < found->second.second; ++block) {
    copy_block(block, arrays.at(blocks_[block].what.array));
  }
}

bool Snapshot::is_pending(size_t block) {
  const std::lock_guard lock(mutex_);
  return blocks_[block].state == BlockState::kPending && !ended_ && !stop_requested_;
}

void Snapshot::copy_remaining() {
  const torch::NoGradGuard no_grad;
  const ScopedTimer timer(waited_seconds_);
  finish_copies(/*wait_for_first=*/false);
  TileReader tiles(held_);
  for (const size_t block : not_in_place_) {
    const StateBlock& what = blocks_[block].what;
    if (held_.plan.units[what.unit].trainable || !is_pending(block)) continue;
    {
      const std::lock_guard lock(mutex_);
      if (!memory_.has_room(what.bytes())) return;
    }
    copy_block(block, tiles.read(what));
  }
}

std::optional<std::string> Snapshot::wait() {
  const torch::NoGradGuard no_grad;
  const ScopedTimer timer(waited_seconds_);
  const auto failure = checkpoint::capture_failure([&] {
    TileReader tiles(held_);
    for (const size_t block : not_in_place_) {
      if (is_pending(block)) copy_block(block, tiles.read(blocks_[block].what));
    }
    while (!arriving_.empty()) finish_copies(/*wait_for_first=*/true);
  });
  std::unique_lock lock(mutex_);
  if (failure) {
    failure_ = failure;
    stop_requested_ = true;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return ended_; });
  return failure_;
}

}  // namespace zeroth::engine
