#include "launcher/cluster/line_forwarder.h"

#include <algorithm>
#include <boost/asio/post.hpp>

namespace zeroth::launcher {

class LineForwarder::ForwardingSink final : public LineSink {
 public:
  ForwardingSink(LineForwarder& owner, int rank, bool error, bool progress)
      : owner_(owner), rank_(rank), error_(error), progress_(progress) {}

  void write(std::string_view text, LineEnd end) override {
    owner_.write({rank_, error_, end == LineEnd::kReturn, std::string(text)});
  }
  bool is_full() const override { return owner_.is_full(); }
  void when_empty(std::function<void()> callback) override {
    if (!is_full()) return callback();
    owner_.when_empty_.push_back(std::move(callback));
  }
  bool splits_returns() const override { return progress_; }

 private:
  LineForwarder& owner_;
  int rank_;
  bool error_;
  bool progress_;
};

LineForwarder::LineForwarder(boost::asio::io_context& io,
                             std::function<void(const OutputLines&)> send)
    : io_(io), send_(std::move(send)) {}

LineForwarder::~LineForwarder() = default;

uint64_t window_bytes(const OutputLines& lines) {
  uint64_t bytes = 0;
  for (const OutputLines::OutputLine& line : lines.lines) bytes += line.text.size() + kLineBytes;
  return bytes;
}

LineSink& LineForwarder::sink_for(int rank, bool error, bool progress) {
  auto& sink = sinks_[{rank, error}];
  if (!sink) sink = std::make_unique<ForwardingSink>(*this, rank, error, progress);
  return *sink;
}

void LineForwarder::write(OutputLines::OutputLine line) {
  if (dropping_) return;
  if (waiting_.lines.empty()) boost::asio::post(io_, [this] { flush(); });
  waiting_bytes_ += line.text.size() + kLineBytes;
  waiting_.lines.push_back(std::move(line));
  if (waiting_bytes_ >= kMessageBytes) flush();
}

void LineForwarder::flush() {
  if (waiting_.lines.empty()) return;
  in_window_ += std::exchange(waiting_bytes_, 0);
  send_(std::exchange(waiting_, {}));
}

void LineForwarder::on_window_update(uint64_t bytes) {
  in_window_ -= std::min(in_window_, bytes);
  if (is_full()) return;
  for (const auto& callback : std::exchange(when_empty_, {})) callback();
}

void LineForwarder::drop_all() {
  dropping_ = true;
  waiting_.lines.clear();
  waiting_bytes_ = 0;
  on_window_update(in_window_);
}

}  // namespace zeroth::launcher
