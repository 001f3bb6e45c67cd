#include "offload/tile_cache.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <iterator>
#include <limits>

#include "base/error.h"

namespace zeroth::offload {
namespace {

constexpr size_t kNever = std::numeric_limits<size_t>::max();

}  // namespace

TileCache::TileCache(FileIo& io, FileBuffers& buffers, const TileCacheOptions& options)
    : io_(io), options_(options) {
  while (auto buffer = buffers.take()) slots_.push_back({.buffer = std::move(*buffer)});
  ZEROTH_CHECK(!slots_.empty(), "a tile cache without buffers");
}

TileCache::~TileCache() {
  for (Slot& slot : slots_) {
    if (slot.transfer != Transfer::kNone) wait(slot);
  }
}

void TileCache::expect(const std::vector<Extent>& extents) {
  const std::lock_guard lock(mutex_);
  for (Tile* const tile : expected_) tile->places.clear();
  expected_.clear();
  next_ = 0;
  for (const Extent& extent : extents) expected_.push_back(&tile_of(extent));
  for (size_t i = expected_.size(); i-- > 0;) expected_[i]->places.push_back(i);
  read_ahead();
}

TileCache::Lease TileCache::borrow(const Extent& extent, Access access) {
  const std::lock_guard lock(mutex_);
  finish_writes();
  throw_if_failed();
  Tile& tile = tile_of(extent);
  advance(tile);
  if (tile.slot == nullptr) hold(make_room(), tile, access != Access::kWrite);
  Slot& slot = *tile.slot;
  ZEROTH_CHECK(!slot.writer && (access == Access::kRead || slot.readers == 0),
               "the tile at {} is borrowed already: {} readers, writer: {}", extent.offset,
               slot.readers, slot.writer);
  slot.last_used = ++uses_;
  slot.writer = access != Access::kRead;
  slot.readers += slot.writer ? 0 : 1;
  read_ahead();  // so that the disk has something to do while this waits
  const std::string error = fill(slot, access);
  if (error.empty()) return {*this, tile, access, slot.buffer.bytes().first(extent.bytes)};
  slot.readers -= slot.writer ? 0 : 1;
  slot.writer = false;
  if (slot.transfer == Transfer::kNone && slot.readers == 0) vacate(slot);
  throw Error(error);
}

void TileCache::take_back(Tile& tile, Access access) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    Slot& slot = *tile.slot;
    if (access == Access::kRead) {
      --slot.readers;
    } else {
      slot.writer = false;
      tile.written = true;
      slot.ticket =
          io_.write(tile.extent.offset, slot.buffer.bytes().first(on_file(tile.extent.bytes)));
      slot.transfer = Transfer::kWrite;
      if (!options_.pipeline_write) wait_for_write(slot);
    }
    read_ahead();
  } catch (const std::exception& error) {
    if (error_.empty()) error_ = error.what();
  }
}

bool TileCache::ready(const Extent& extent) {
  const std::lock_guard lock(mutex_);
  read_ahead();
  const Tile& tile = tile_of(extent);
  if (tile.slot != nullptr) {
    return tile.slot->transfer == Transfer::kNone || io_.ended(tile.slot->ticket);
  }
  const Slot* const slot = replaceable(false);
  return !tile.written && slot != nullptr && next_place(*slot) == kNever;
}

void TileCache::settle() {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.transfer == Transfer::kWrite) wait_for_write(slot);
  }
  throw_if_failed();
}

Traffic TileCache::traffic() const {
  const std::lock_guard lock(mutex_);
  const FileIo::BusySeconds busy = io_.busy();
  return {.bytes_read = static_cast<int64_t>(io_.bytes_read()),
          .bytes_written = static_cast<int64_t>(io_.bytes_written()),
          .reading_s = busy.reads,
          .writing_s = busy.writes,
          .under_way_s = busy.any,
          .waited_s = waited_s_};
}

TileCache::Tile& TileCache::tile_of(const Extent& extent) {
  const auto next = tiles_.lower_bound(extent.offset);
  if (next != tiles_.end() && next->first == extent.offset) {
    ZEROTH_CHECK(next->second.extent.bytes == extent.bytes,
                 "a tile at {} of {} bytes, before it had {}", extent.offset, extent.bytes,
                 next->second.extent.bytes);
    return next->second;
  }
  const size_t most = slots_.front().buffer.bytes().size();
  ZEROTH_CHECK(extent.bytes > 0 && extent.bytes <= most && extent.offset % kFileAlignment == 0,
               "a tile at {} of {} bytes, buffers have {}", extent.offset, extent.bytes, most);
  if (next != tiles_.end()) {
    ZEROTH_CHECK(extent.offset + extent.bytes <= next->first,
                 "a tile at {} of {} bytes, another begins at {}", extent.offset, extent.bytes,
                 next->first);
  }
  if (next != tiles_.begin()) {
    const Extent& before = std::prev(next)->second.extent;
    ZEROTH_CHECK(before.offset + before.bytes <= extent.offset,
                 "a tile at {}, another begins at {} and has {} bytes", extent.offset,
                 before.offset, before.bytes);
  }
  return tiles_.emplace_hint(next, extent.offset, Tile{.extent = extent})->second;
}

// Where the slot's tile stands next in the list of what is expected; kNever where it does not.
size_t TileCache::next_place(const Slot& slot) {
  if (slot.tile == nullptr) return kNever;
  std::vector<size_t>& places = slot.tile->places;
  while (!places.empty() && places.back() < next_) places.pop_back();
  return places.empty() ? kNever : places.back();
}

// The caller has come to `tile` in the list of what is expected. A tile that stands there only
// behind the window is borrowed once more: the caller has not come as far as that.
void TileCache::advance(Tile& tile) {
  const size_t window = std::min(expected_.size(), next_ + slots_.size());
  for (size_t i = next_; i < window; ++i) {
    if (expected_[i] != &tile) continue;
    next_ = i + 1;
    return;
  }
}

void TileCache::read_ahead() {
  finish_writes();
  if (!options_.pipeline_read || !error_.empty()) return;
  for (size_t i = next_; i < expected_.size(); ++i) {
    if (expected_[i]->slot != nullptr) continue;
    Slot* const slot = replaceable(false);
    if (slot == nullptr || next_place(*slot) < i) return;
    hold(*slot, *expected_[i], true);
  }
}

// Of the slots that are free, clean, or read ahead (and ended, unless one may wait) the one that is
// needed last; none if there is no such slot.
TileCache::Slot* TileCache::replaceable(bool may_wait) {
  Slot* best = nullptr;
  for (Slot& slot : slots_) {
    if (slot.writer || slot.readers > 0 || slot.transfer == Transfer::kWrite) continue;
    if (slot.transfer == Transfer::kRead && !may_wait && !io_.ended(slot.ticket)) continue;
    if (best != nullptr) {
      const size_t place = next_place(slot), best_place = next_place(*best);
      if (place < best_place) continue;
      if (place == best_place && slot.last_used > best->last_used) continue;
    }
    best = &slot;
  }
  return best;
}

TileCache::Slot& TileCache::make_room() {
  for (;;) {
    Slot* const slot = replaceable(false);
    if (slot != nullptr && next_place(*slot) == kNever) return *slot;
    Slot* oldest = nullptr;
    for (Slot& writing : slots_) {
      if (writing.transfer != Transfer::kWrite) continue;
      if (oldest == nullptr || writing.ticket < oldest->ticket) oldest = &writing;
    }
    if (oldest == nullptr) break;
    wait_for_write(*oldest);
    throw_if_failed();
  }
  Slot* const slot = replaceable(true);
  if (slot == nullptr) {
    const auto writers =
        std::count_if(slots_.begin(), slots_.end(), [](const Slot& lent) { return lent.writer; });
    ZEROTH_CHECK(slot != nullptr, "all {} buffers are borrowed, {} of them to be written",
                 slots_.size(), writers);
  }
  return *slot;
}

void TileCache::hold(Slot& slot, Tile& tile, bool read) {
  vacate(slot);
  if (read && tile.written) {
    slot.ticket =
        io_.read(tile.extent.offset, slot.buffer.bytes().first(on_file(tile.extent.bytes)));
    slot.transfer = Transfer::kRead;
  }
  slot.unset = !tile.written;
  slot.last_used = ++uses_;
  slot.tile = &tile;
  tile.slot = &slot;
}

// A tile read ahead in vain may have failed: its next borrow reads it again and will say so.
void TileCache::vacate(Slot& slot) {
  if (slot.transfer == Transfer::kRead) wait(slot);
  if (slot.tile != nullptr) slot.tile->slot = nullptr;
  slot.tile = nullptr;
}

// Makes the buffer what the lease needs; returns why it cannot.
std::string TileCache::fill(Slot& slot, Access access) {
  if (slot.transfer == Transfer::kRead) {
    const std::string error = wait(slot);
    if (access != Access::kWrite && !error.empty()) return error;
  }
  if (slot.transfer == Transfer::kWrite && access != Access::kRead) {
    wait_for_write(slot);
    if (!error_.empty()) return error_;
  }
  if (slot.unset && access != Access::kWrite) {
    std::memset(slot.buffer.bytes().data(), 0, slot.tile->extent.bytes);
  }
  slot.unset = false;
  return {};
}

// Ends the slot's transfer; returns its error.
std::string TileCache::wait(Slot& slot) {
  const auto start = std::chrono::steady_clock::now();
  std::string error;
  try {
    io_.wait(slot.ticket);
  } catch (const Error& failed) {
    error = failed.what();
  }
  slot.transfer = Transfer::kNone;
  waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return error;
}

void TileCache::wait_for_write(Slot& slot) {
  const std::string error = wait(slot);
  if (error_.empty()) error_ = error;
}

void TileCache::finish_writes() {
  for (Slot& slot : slots_) {
    if (slot.transfer == Transfer::kWrite && io_.ended(slot.ticket)) wait_for_write(slot);
  }
}

void TileCache::throw_if_failed() const {
  if (!error_.empty()) throw Error(error_);
}

}  // namespace zeroth::offload
