#include "launcher/run/rank_stream.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace zeroth::launcher {

using boost::asio::posix::stream_descriptor;

RankStream::RankStream(boost::asio::io_context& io, FileDescriptor source, LineSink& sink)
    : source_(io, source.release()),
      sink_(sink),
      splitter_(sink.splits_returns()),
      to_sink_([this](std::string_view text, LineEnd end) { sink_.write(text, end); }) {
  source_.non_blocking(true);
}

void RankStream::start(std::function<void()> on_closed) {
  on_closed_ = std::move(on_closed);
  wait();
}

void RankStream::wait() {
  // Waits for readiness and then reads itself: without a pending read of Asio's, drain() keeps the
  // bytes in order.
  source_.async_wait(stream_descriptor::wait_read, [this](boost::system::error_code error) {
    if (error) return;
    read_some();
    if (!is_open()) return;
    sink_.is_full() ? sink_.when_empty([this] {
      if (is_open()) wait();
    })
                    : wait();
  });
}

bool RankStream::read_some() {
  if (!is_open()) return false;
  std::array<char, 65536> buffer;
  const ssize_t count = ::read(source_.native_handle(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  if (count <= 0) {
    close();
    return false;
  }
  splitter_.feed({buffer.data(), static_cast<size_t>(count)}, to_sink_);
  return true;
}

void RankStream::drain() {
  constexpr int kMaxReads =
      32;  // exceeds any pipe's capacity; bounds the time for a process that still writes
  for (int i = 0; i < kMaxReads && read_some(); ++i) {
  }
}

void RankStream::close() {
  if (!is_open()) return;
  splitter_.flush(to_sink_);
  source_.close();
  if (on_closed_) std::exchange(on_closed_, nullptr)();
}

}  // namespace zeroth::launcher
