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

TileCache::TileCache(FileIo& io, const FileBuffers& buffers, const TileCacheOptions& options)
    : io_(io), options_(options) {
  for (size_t i = 0; i < buffers.count(); ++i) buffers_.push_back({.bytes = buffers[i]});
  ZEROTH_CHECK(!buffers_.empty(), "a tile cache without buffers");
}

TileCache::~TileCache() {
  for (Buffer& buffer : buffers_) {
    if (buffer.transfer != Transfer::kNone) wait(buffer);
  }
}

void TileCache::expect(const std::vector<Extent>& extents) {
  const std::lock_guard lock(mutex_);
  for (Tile* const tile : expected_) tile->turns.clear();
  expected_.clear();
  next_ = 0;
  for (const Extent& extent : extents) expected_.push_back(&tile_of(extent));
  for (size_t i = expected_.size(); i-- > 0;) expected_[i]->turns.push_back(i);
  read_ahead();
}

TileCache::Lease TileCache::borrow(const Extent& extent, Access access) {
  const std::lock_guard lock(mutex_);
  finish_writes();
  throw_if_failed();
  Tile& tile = tile_of(extent);
  advance(tile);
  if (tile.buffer == nullptr) hold(make_room(), tile, access != Access::kWrite);
  Buffer& buffer = *tile.buffer;
  ZEROTH_CHECK(!buffer.writer && (access == Access::kRead || buffer.readers == 0),
               "the tile at {} is borrowed already: {} readers, writer: {}", extent.offset,
               buffer.readers, buffer.writer);
  buffer.last_used = ++uses_;
  buffer.writer = access != Access::kRead;
  buffer.readers += buffer.writer ? 0 : 1;
  read_ahead();  // so that the disk has something to do while this waits
  const std::string error = fill(buffer, access);
  if (error.empty()) return {*this, tile, access, buffer.bytes.first(extent.bytes)};
  buffer.readers -= buffer.writer ? 0 : 1;
  buffer.writer = false;
  if (buffer.transfer == Transfer::kNone && buffer.readers == 0) vacate(buffer);
  throw Error(error);
}

void TileCache::take_back(Tile& tile, Access access) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    Buffer& buffer = *tile.buffer;
    if (access == Access::kRead) {
      --buffer.readers;
    } else {
      buffer.writer = false;
      tile.written = true;
      buffer.ticket = io_.write(tile.extent.offset, buffer.bytes.first(on_file(tile.extent.bytes)));
      buffer.transfer = Transfer::kWrite;
      if (!options_.pipeline_write) wait_for_write(buffer);
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
  if (tile.buffer != nullptr) {
    return tile.buffer->transfer == Transfer::kNone || io_.ended(tile.buffer->ticket);
  }
  const Buffer* const buffer = replaceable(false);
  return !tile.written && buffer != nullptr && next_turn(*buffer) == kNever;
}

void TileCache::settle() {
  const std::lock_guard lock(mutex_);
  for (Buffer& buffer : buffers_) {
    if (buffer.transfer == Transfer::kWrite) wait_for_write(buffer);
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
  const size_t most = buffers_.front().bytes.size();
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

// Where the buffer's tile stands next in the list of what is expected; kNever where it does not.
size_t TileCache::next_turn(const Buffer& buffer) {
  if (buffer.tile == nullptr) return kNever;
  std::vector<size_t>& turns = buffer.tile->turns;
  while (!turns.empty() && turns.back() < next_) turns.pop_back();
  return turns.empty() ? kNever : turns.back();
}

// The caller has come to `tile` in the list of what is expected. A tile that stands there only
// behind the window is borrowed once more: the caller has not come as far as that.
void TileCache::advance(Tile& tile) {
  const size_t window = std::min(expected_.size(), next_ + buffers_.size());
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
    if (expected_[i]->buffer != nullptr) continue;
    Buffer* const buffer = replaceable(false);
    if (buffer == nullptr || next_turn(*buffer) < i) return;
    hold(*buffer, *expected_[i], true);
  }
}

// Of the buffers that are free, clean, or read ahead (and ended, unless one may wait) the one that
// is needed last; none if there is no such buffer.
TileCache::Buffer* TileCache::replaceable(bool may_wait) {
  Buffer* best = nullptr;
  for (Buffer& buffer : buffers_) {
    if (buffer.writer || buffer.readers > 0 || buffer.transfer == Transfer::kWrite) continue;
    if (buffer.transfer == Transfer::kRead && !may_wait && !io_.ended(buffer.ticket)) continue;
    if (best != nullptr) {
      const size_t turn = next_turn(buffer), best_turn = next_turn(*best);
      if (turn < best_turn) continue;
      if (turn == best_turn && buffer.last_used > best->last_used) continue;
    }
    best = &buffer;
  }
  return best;
}

TileCache::Buffer& TileCache::make_room() {
  for (;;) {
    Buffer* const buffer = replaceable(false);
    if (buffer != nullptr && next_turn(*buffer) == kNever) return *buffer;
    Buffer* oldest = nullptr;
    for (Buffer& writing : buffers_) {
      if (writing.transfer != Transfer::kWrite) continue;
      if (oldest == nullptr || writing.ticket < oldest->ticket) oldest = &writing;
    }
    if (oldest == nullptr) break;
    wait_for_write(*oldest);
    throw_if_failed();
  }
  Buffer* const buffer = replaceable(true);
  if (buffer == nullptr) {
    const auto writers = std::count_if(buffers_.begin(), buffers_.end(),
                                       [](const Buffer& lent) { return lent.writer; });
    ZEROTH_CHECK(buffer != nullptr, "all {} buffers are borrowed, {} of them to be written",
                 buffers_.size(), writers);
  }
  return *buffer;
}

void TileCache::hold(Buffer& buffer, Tile& tile, bool read) {
  vacate(buffer);
  if (read && tile.written) {
    buffer.ticket = io_.read(tile.extent.offset, buffer.bytes.first(on_file(tile.extent.bytes)));
    buffer.transfer = Transfer::kRead;
  }
  buffer.unset = !tile.written;
  buffer.last_used = ++uses_;
  buffer.tile = &tile;
  tile.buffer = &buffer;
}

// A tile read ahead in vain may have failed: its next borrow reads it again and will say so.
void TileCache::vacate(Buffer& buffer) {
  if (buffer.transfer == Transfer::kRead) wait(buffer);
  if (buffer.tile != nullptr) buffer.tile->buffer = nullptr;
  buffer.tile = nullptr;
}

// Makes the buffer what the lease needs; returns why it cannot.
std::string TileCache::fill(Buffer& buffer, Access access) {
  if (buffer.transfer == Transfer::kRead) {
    const std::string error = wait(buffer);
    if (access != Access::kWrite && !error.empty()) return error;
  }
  if (buffer.transfer == Transfer::kWrite && access != Access::kRead) {
    wait_for_write(buffer);
    if (!error_.empty()) return error_;
  }
  if (buffer.unset && access != Access::kWrite) {
    std::memset(buffer.bytes.data(), 0, buffer.tile->extent.bytes);
  }
  buffer.unset = false;
  return {};
}

// Ends the buffer's transfer; returns its error.
std::string TileCache::wait(Buffer& buffer) {
  const auto start = std::chrono::steady_clock::now();
  std::string error;
  try {
    io_.wait(buffer.ticket);
  } catch (const Error& failed) {
    error = failed.what();
  }
  buffer.transfer = Transfer::kNone;
  waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return error;
}

void TileCache::wait_for_write(Buffer& buffer) {
  const std::string error = wait(buffer);
  if (error_.empty()) error_ = error;
}

void TileCache::finish_writes() {
  for (Buffer& buffer : buffers_) {
    if (buffer.transfer == Transfer::kWrite && io_.ended(buffer.ticket)) wait_for_write(buffer);
  }
}

void TileCache::throw_if_failed() const {
  if (!error_.empty()) throw Error(error_);
}

}  // namespace zeroth::offload
