#include "launcher/run/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace zeroth::launcher {
namespace {

using boost::asio::posix::stream_descriptor;

constexpr size_t kTailLines = 20;
constexpr size_t kTailLineBytes = 1000;
constexpr std::string_view kClearLine = "\r\x1b[K";

// Reopens the file: O_NONBLOCK belongs to the open file description, which other programs share.
int reopen_without_blocking(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return -1;
  if (!S_ISFIFO(status.st_mode) && ::isatty(fd) == 0) return -1;
  return ::open(proc_fd_path(fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

}  // namespace

OutputSink::OutputSink(boost::asio::io_context& io, int fd, std::function<void(int)> on_broken)
    : fd_(fd), is_terminal_(::isatty(fd) != 0), on_broken_(std::move(on_broken)) {
  const int reopened = reopen_without_blocking(fd);
  if (reopened < 0) return;
  reopened_.emplace(io, reopened);
  fd_ = reopened;
}

void OutputSink::write(std::string_view text) {
  if (!on_broken_) return;
  pending_ += text;
  if (!waiting_) flush();
}

void OutputSink::write_line(std::string_view text) {
  ++num_lines_;
  write(fmt::format("{}\n", text));
}

void OutputSink::when_empty(std::function<void()> callback) {
  if (empty()) return callback();
  callbacks_.push_back(std::move(callback));
}

void OutputSink::flush() {
  size_t written = 0;
  while (written < pending_.size()) {
    const ssize_t count = ::write(fd_, pending_.data() + written, pending_.size() - written);
    if (count >= 0) {
      written += static_cast<size_t>(count);
    } else if (errno == EAGAIN && reopened_) {
      waiting_ = true;
      reopened_->async_wait(stream_descriptor::wait_write, [this, alive = std::weak_ptr(lifetime_)](
                                                               boost::system::error_code error) {
        if (error || alive.expired()) return;
        waiting_ = false;
        flush();
      });
      break;
    } else if (errno != EINTR) {
      written = pending_.size();
      std::exchange(on_broken_, nullptr)(errno);
    }
  }
  pending_.erase(0, written);
  if (!pending_.empty()) return;
  for (auto& callback : std::exchange(callbacks_, {})) callback();
}

Console::Console(boost::asio::io_context& io, const std::function<void(int, int)>& on_broken)
    : out_(io, STDOUT_FILENO, [on_broken](int error) { on_broken(STDOUT_FILENO, error); }) {
  if (is_same_file(STDOUT_FILENO, STDERR_FILENO).value_or(false)) return;
  err_.emplace(io, STDERR_FILENO, [on_broken](int error) { on_broken(STDERR_FILENO, error); });
}

void Console::write_line(OutputSink& sink, std::string_view text) {
  const bool replaces = progress_shown_ && sink.is_terminal();
  if (replaces) progress_shown_ = false;
  sink.write_line(fmt::format("{}{}", replaces ? kClearLine : "", text));
}

void Console::write_progress(std::string_view text) {
  progress_shown_ = true;
  out_.write(fmt::format("{}{}\r", kClearLine, text));
}

void Console::keep_progress() {
  if (std::exchange(progress_shown_, false)) out_.write("\n");
}

void Tail::add(std::string_view line, const OutputSink& sink) {
  sink_ = &sink;
  line_number_ = sink.num_lines();
  lines_.emplace_back(line.substr(0, kTailLineBytes));
  if (lines_.size() > kTailLines) lines_.pop_front();
}

bool Tail::is_last_in(const OutputSink& sink) const {
  return sink_ == &sink && line_number_ == sink.num_lines();
}

void LineSplitter::feed(std::string_view bytes, const Sink& sink) {
  for (const char byte : bytes) {
    if (byte == '\n') {
      end_line(sink);
    } else if (byte == '\r' && split_returns_) {
      end_return(sink);
    } else {
      partial_.push_back(byte);
      if (partial_.size() >= kMaxLineBytes) end_line(sink);
    }
  }
}

void LineSplitter::flush(const Sink& sink) {
  if (!partial_.empty()) end_line(sink);
}

void LineSplitter::end_line(const Sink& sink) {
  sink(partial_.empty() ? returned_ : partial_, LineEnd::kNewline);
  partial_.clear();
  returned_.clear();
}

void LineSplitter::end_return(const Sink& sink) {
  if (partial_.empty()) return;
  sink(partial_, LineEnd::kReturn);
  returned_.swap(partial_);
  partial_.clear();
}

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
