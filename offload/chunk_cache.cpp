#include "offload/chunk_cache.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>

#include "base/error.h"
#include "base/machine/timer.h"

namespace zeroth::offload {

ChunkCache::ChunkCache(FileIo& io, const FileBuffers& buffers, const ChunkCacheOptions& options)
    : io_(io), options_(options) {
  for (size_t i = 0; i < buffers.count(); ++i) buffers_.push_back({.bytes = buffers[i]});
  ZEROTH_CHECK(!buffers_.empty(), "a chunk cache without buffers");
}

ChunkCache::~ChunkCache() {
  for (CacheBuffer& buffer : buffers_) {
    if (buffer.pending_io != PendingIo::kNone) wait(buffer);
  }
}

void ChunkCache::prefetch(const std::vector<Extent>& extents) {
  const std::lock_guard lock(mutex_);
  for (CachedChunk* const chunk : prefetch_list_) chunk->next_uses.clear();
  prefetch_list_.clear();
  next_ = 0;
  for (const Extent& extent : extents) prefetch_list_.push_back(&chunk_at(extent));
  for (size_t i = prefetch_list_.size(); i-- > 0;) prefetch_list_[i]->next_uses.push_back(i);
  read_ahead();
}

ChunkCache::Lease ChunkCache::acquire(const Extent& extent, Access access) {
  const std::lock_guard lock(mutex_);
  finish_writes();
  throw_if_failed();
  CachedChunk& chunk = chunk_at(extent);
  advance(chunk);
  if (chunk.buffer == nullptr) assign(evict_buffer(), chunk, access != Access::kWrite);
  CacheBuffer& buffer = *chunk.buffer;
  ZEROTH_CHECK(!buffer.writer && (access == Access::kRead || buffer.readers == 0),
               "the chunk at {} is already leased: {} readers, writer: {}", extent.offset,
               buffer.readers, buffer.writer);
  buffer.last_used = ++use_count_;
  buffer.writer = access != Access::kRead;
  buffer.readers += buffer.writer ? 0 : 1;
  read_ahead();  // keeps the disk busy while this call waits
  const std::string error = load(buffer, access);
  if (error.empty()) return {*this, chunk, access, buffer.bytes.first(extent.bytes)};
  buffer.readers -= buffer.writer ? 0 : 1;
  buffer.writer = false;
  if (buffer.pending_io == PendingIo::kNone && buffer.readers == 0) evict(buffer);
  throw Error(error);
}

void ChunkCache::release(CachedChunk& chunk, Access access) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    CacheBuffer& buffer = *chunk.buffer;
    if (access == Access::kRead) {
      --buffer.readers;
    } else {
      buffer.writer = false;
      chunk.written = true;
      buffer.request_id =
          io_.write(chunk.extent.offset, buffer.bytes.first(file_aligned(chunk.extent.bytes)));
      buffer.pending_io = PendingIo::kWrite;
      if (!options_.pipeline_write) wait_for_write(buffer);
    }
    read_ahead();
  } catch (const std::exception& error) {
    if (error_.empty()) error_ = error.what();
  }
}

bool ChunkCache::ready(const Extent& extent) {
  const std::lock_guard lock(mutex_);
  read_ahead();
  const CachedChunk& chunk = chunk_at(extent);
  if (chunk.buffer != nullptr) {
    return chunk.buffer->pending_io == PendingIo::kNone || io_.ended(chunk.buffer->request_id);
  }
  const CacheBuffer* const buffer = find_evictable(false);
  return !chunk.written && buffer != nullptr && next_use(*buffer) == kNever;
}

void ChunkCache::flush() {
  const std::lock_guard lock(mutex_);
  for (CacheBuffer& buffer : buffers_) {
    if (buffer.pending_io == PendingIo::kWrite) wait_for_write(buffer);
  }
  throw_if_failed();
}

Traffic ChunkCache::traffic() const {
  const std::lock_guard lock(mutex_);
  Traffic traffic = io_.traffic();
  traffic.waited_s = waited_s_;
  return traffic;
}

ChunkCache::CachedChunk& ChunkCache::chunk_at(const Extent& extent) {
  const auto next = chunks_.lower_bound(extent.offset);
  if (next != chunks_.end() && next->first == extent.offset) {
    ZEROTH_CHECK(next->second.extent.bytes == extent.bytes,
                 "a chunk at {} of {} bytes, before it had {}", extent.offset, extent.bytes,
                 next->second.extent.bytes);
    return next->second;
  }
  const size_t max_bytes = buffers_.front().bytes.size();
  ZEROTH_CHECK(extent.bytes > 0 && extent.bytes <= max_bytes && extent.offset % kFileAlignment == 0,
               "a chunk at {} of {} bytes, buffers have {}", extent.offset, extent.bytes,
               max_bytes);
  if (next != chunks_.end()) {
    ZEROTH_CHECK(extent.offset + extent.bytes <= next->first,
                 "a chunk at {} of {} bytes, another begins at {}", extent.offset, extent.bytes,
                 next->first);
  }
  if (next != chunks_.begin()) {
    const Extent& before = std::prev(next)->second.extent;
    ZEROTH_CHECK(before.offset + before.bytes <= extent.offset,
                 "a chunk at {}, another begins at {} and has {} bytes", extent.offset,
                 before.offset, before.bytes);
  }
  return chunks_.emplace_hint(next, extent.offset, CachedChunk{.extent = extent})->second;
}

// Returns the next index of the buffer's chunk in prefetch_list_; kNever if it is not in the list.
size_t ChunkCache::next_use(const CacheBuffer& buffer) {
  if (buffer.chunk == nullptr) return kNever;
  std::vector<size_t>& next_uses = buffer.chunk->next_uses;
  while (!next_uses.empty() && next_uses.back() < next_) next_uses.pop_back();
  return next_uses.empty() ? kNever : next_uses.back();
}

// Advances in prefetch_list_ to `chunk`. If the list has it only after the window, this is an
// additional acquire(): the caller has not advanced that far.
void ChunkCache::advance(CachedChunk& chunk) {
  const size_t window = std::min(prefetch_list_.size(), next_ + buffers_.size());
  for (size_t i = next_; i < window; ++i) {
    if (prefetch_list_[i] != &chunk) continue;
    next_ = i + 1;
    return;
  }
}

void ChunkCache::read_ahead() {
  finish_writes();
  if (!options_.pipeline_read || !error_.empty()) return;
  for (size_t i = next_; i < prefetch_list_.size(); ++i) {
    if (prefetch_list_[i]->buffer != nullptr) continue;
    CacheBuffer* const buffer = find_evictable(false);
    if (buffer == nullptr || next_use(*buffer) < i) return;
    assign(*buffer, *prefetch_list_[i], true);
  }
}

// Returns the buffer whose next use is last, of those that are free, clean, or prefetched (with
// their read complete, unless `may_wait`); null if there is none.
ChunkCache::CacheBuffer* ChunkCache::find_evictable(bool may_wait) {
  CacheBuffer* best = nullptr;
  for (CacheBuffer& buffer : buffers_) {
    if (buffer.writer || buffer.readers > 0 || buffer.pending_io == PendingIo::kWrite) continue;
    if (buffer.pending_io == PendingIo::kRead && !may_wait && !io_.ended(buffer.request_id))
      continue;
    if (best != nullptr) {
      const size_t use = next_use(buffer), best_use = next_use(*best);
      if (use < best_use) continue;
      if (use == best_use && buffer.last_used > best->last_used) continue;
    }
    best = &buffer;
  }
  return best;
}

ChunkCache::CacheBuffer& ChunkCache::evict_buffer() {
  for (;;) {
    CacheBuffer* const buffer = find_evictable(false);
    if (buffer != nullptr && next_use(*buffer) == kNever) return *buffer;
    CacheBuffer* oldest = nullptr;
    for (CacheBuffer& writing : buffers_) {
      if (writing.pending_io != PendingIo::kWrite) continue;
      if (oldest == nullptr || writing.request_id < oldest->request_id) oldest = &writing;
    }
    if (oldest == nullptr) break;
    wait_for_write(*oldest);
    throw_if_failed();
  }
  CacheBuffer* const buffer = find_evictable(true);
  ZEROTH_CHECK(buffer != nullptr, "all {} buffers are leased, {} of them for writing",
               buffers_.size(), std::ranges::count(buffers_, true, &CacheBuffer::writer));
  return *buffer;
}

void ChunkCache::assign(CacheBuffer& buffer, CachedChunk& chunk, bool read) {
  evict(buffer);
  if (read && chunk.written) {
    buffer.request_id =
        io_.read(chunk.extent.offset, buffer.bytes.first(file_aligned(chunk.extent.bytes)));
    buffer.pending_io = PendingIo::kRead;
  }
  buffer.needs_zeroing = !chunk.written;
  buffer.last_used = ++use_count_;
  buffer.chunk = &chunk;
  chunk.buffer = &buffer;
}

// Frees the buffer. Ignores the error of an unused prefetch: the chunk's next acquire() reads it
// again and reports it.
void ChunkCache::evict(CacheBuffer& buffer) {
  if (buffer.pending_io == PendingIo::kRead) wait(buffer);
  if (buffer.chunk != nullptr) buffer.chunk->buffer = nullptr;
  buffer.chunk = nullptr;
}

// Prepares the buffer for the lease; returns the reason if it fails.
std::string ChunkCache::load(CacheBuffer& buffer, Access access) {
  if (buffer.pending_io == PendingIo::kRead) {
    const std::string error = wait(buffer);
    if (access != Access::kWrite && !error.empty()) return error;
  }
  if (buffer.pending_io == PendingIo::kWrite && access != Access::kRead) {
    wait_for_write(buffer);
    if (!error_.empty()) return error_;
  }
  if (buffer.needs_zeroing && access != Access::kWrite) {
    std::memset(buffer.bytes.data(), 0, buffer.chunk->extent.bytes);
  }
  buffer.needs_zeroing = false;
  return {};
}

// Blocks until the buffer's transfer has ended; returns its error.
std::string ChunkCache::wait(CacheBuffer& buffer) {
  const ScopedTimer timer(waited_s_);
  std::string error;
  try {
    io_.wait(buffer.request_id);
  } catch (const Error& failed) {
    error = failed.what();
  }
  buffer.pending_io = PendingIo::kNone;
  return error;
}

void ChunkCache::wait_for_write(CacheBuffer& buffer) {
  const std::string error = wait(buffer);
  if (error_.empty()) error_ = error;
}

void ChunkCache::finish_writes() {
  for (CacheBuffer& buffer : buffers_) {
    if (buffer.pending_io == PendingIo::kWrite && io_.ended(buffer.request_id))
      wait_for_write(buffer);
  }
}

void ChunkCache::throw_if_failed() const {
  if (!error_.empty()) throw Error(error_);
}

}  // namespace zeroth::offload
