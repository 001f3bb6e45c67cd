#include "offload/file_io.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/process_limits.h"

namespace zeroth::offload {
namespace {

constexpr size_t kLargestPiece = size_t{1} << 30;  // the kernel transfers less than 2 GiB at once

// A piece is interrupted, or the kernel short of memory for it, at most so often.
constexpr int kMostRepeats = 1000;

const char* name(FileOp op) {
  return op == FileOp::kRead ? "read" : "write";
}

}  // namespace

FileIo::FileIo(const SwapFile& file, FileLanes lanes, size_t piece_bytes)
    : path_(file.path()),
      size_bytes_(file.size_bytes()),
      piece_bytes_(piece_bytes),
      engine_(std::move(lanes.engine)),
      lanes_(std::move(lanes.lanes)) {
  ZEROTH_CHECK(piece_bytes > 0 && piece_bytes % kFileAlignment == 0 && piece_bytes <= kLargestPiece,
               "pieces of {} bytes", piece_bytes);
  for (const auto& lane : lanes_) {
    threads_.emplace_back([this, &lane] { run(*lane); });
  }
}

FileIo::~FileIo() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    waiting_.clear();
  }
  work_.notify_all();
  for (const auto& lane : lanes_) lane->wake();
  threads_.clear();
}

FileIo::Ticket FileIo::read(uint64_t offset, std::span<std::byte> into) {
  return begin({FileOp::kRead, offset, into.data(), into.size()});
}

FileIo::Ticket FileIo::write(uint64_t offset, std::span<const std::byte> from) {
  return begin({FileOp::kWrite, offset, const_cast<std::byte*>(from.data()), from.size()});
}

FileIo::Ticket FileIo::begin(const FilePiece& whole) {
  const auto address = reinterpret_cast<uintptr_t>(whole.data);
  ZEROTH_CHECK((whole.offset | whole.length | address) % kFileAlignment == 0,
               "unaligned {} of {} bytes at offset {}, address {:#x}", name(whole.op), whole.length,
               whole.offset, address);
  ZEROTH_CHECK(
      whole.length > 0 && whole.length <= size_bytes_ && whole.offset <= size_bytes_ - whole.length,
      "{} of {} bytes at offset {} of a file of {}", name(whole.op), whole.length, whole.offset,
      size_bytes_);
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = next_ticket_++;
    any_.begin();
    busy(whole.op).begin();
    Request& request = requests_[ticket];
    request.op = whole.op;
    for (size_t done = 0; done < whole.length; done += piece_bytes_) {
      const size_t length = std::min(piece_bytes_, whole.length - done);
      waiting_.push_back({{whole.op, whole.offset + done, whole.data + done, length}, ticket, 0});
      ++request.pieces_left;
    }
  }
  work_.notify_all();
  for (const auto& lane : lanes_) lane->wake();
  return ticket;
}

// Fills the lane, hears what ended, until there is nothing left after stop_.
void FileIo::run(FileLane& lane) {
  std::vector<Piece> under_way(lane.depth());
  std::vector<size_t> free(lane.depth());
  std::iota(free.begin(), free.end(), size_t{0});
  std::vector<PieceResult> ended;
  for (;;) {
    if (free.size() == under_way.size()) {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
    }
    while (!free.empty() && take(under_way[free.back()])) {
      lane.start(free.back(), under_way[free.back()]);
      free.pop_back();
    }
    if (free.size() == under_way.size()) continue;  // another lane was faster
    ended.clear();
    lane.wait(ended);
    for (const auto& result : ended) {
      finish(under_way[result.number], result.bytes);
      free.push_back(result.number);
    }
  }
}

// The next piece of a request that has not failed.
bool FileIo::take(Piece& piece) {
  const std::lock_guard lock(mutex_);
  while (!waiting_.empty()) {
    piece = waiting_.front();
    waiting_.pop_front();
    if (requests_.at(piece.ticket).error.empty()) return true;
    end(piece.ticket);
  }
  return false;
}

void FileIo::finish(Piece piece, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == -EINTR || bytes == -EAGAIN) {
    // No limit of the process is the reason here, whatever system_reason makes of EAGAIN.
    if (++piece.repeats > kMostRepeats) return fail(piece, std::strerror(static_cast<int>(-bytes)));
    return stop_ ? end(piece.ticket) : waiting_.push_front(piece);
  }
  if (bytes < 0) return fail(piece, system_reason(static_cast<int>(-bytes)));
  // What follows must be aligned again, so the last part of a block is transferred twice.
  const size_t transferred = std::min(static_cast<size_t>(bytes), piece.length);
  const size_t kept = transferred / kFileAlignment * kFileAlignment;
  (piece.op == FileOp::kRead ? bytes_read_ : bytes_written_) += kept;
  if (kept == piece.length) return end(piece.ticket);
  if (kept == 0) {
    return fail(piece, fmt::format("only {} bytes were transferred{}", transferred,
                                   piece.op == FileOp::kRead ? ", the file ends there" : ""));
  }
  piece.offset += kept;
  piece.data += kept;
  piece.length -= kept;
  return stop_ ? end(piece.ticket) : waiting_.push_front(piece);
}

void FileIo::fail(const Piece& piece, const std::string& reason) {
  std::string& error = requests_.at(piece.ticket).error;
  if (error.empty()) {
    error = fmt::format("cannot {} {} bytes at offset {} of {}: {}", name(piece.op), piece.length,
                        piece.offset, path_, reason);
  }
  end(piece.ticket);
}

void FileIo::end(Ticket ticket) {
  Request& request = requests_.at(ticket);
  if (--request.pieces_left > 0) return;
  any_.end();
  busy(request.op).end();
  finished_.notify_all();
}

void FileIo::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  ZEROTH_CHECK(requests_.contains(ticket), "ticket {} was waited for already", ticket);
  finished_.wait(lock, [&] { return requests_.at(ticket).pieces_left == 0; });
  const std::string error = requests_.extract(ticket).mapped().error;
  if (!error.empty()) throw Error(error);
}

bool FileIo::ended(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  ZEROTH_CHECK(requests_.contains(ticket), "ticket {} was waited for already", ticket);
  return requests_.at(ticket).pieces_left == 0;
}

FileIo::BusySeconds FileIo::busy() {
  const std::lock_guard lock(mutex_);
  return {.any = any_.seconds(), .reads = reads_.seconds(), .writes = writes_.seconds()};
}

}  // namespace zeroth::offload
