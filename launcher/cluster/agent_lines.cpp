#include "launcher/cluster/agent_lines.h"

#include <algorithm>
#include <boost/asio/post.hpp>

namespace zeroth::launcher {

class AgentLines::Target final : public LineTarget {
 public:
  Target(AgentLines& owner, int rank, bool error, bool progress)
      : owner_(owner), rank_(rank), error_(error), progress_(progress) {}

  void take(std::string_view text, LineEnd end) override {
    owner_.take({rank_, error_, end == LineEnd::kReturn, std::string(text)});
  }
  bool full() const override { return owner_.full(); }
  void when_empty(std::function<void()> callback) override {
    if (!full()) return callback();
    owner_.when_empty_.push_back(std::move(callback));
  }
  bool splits_returns() const override { return progress_; }

 private:
  AgentLines& owner_;
  int rank_;
  bool error_;
  bool progress_;
};

AgentLines::AgentLines(boost::asio::io_context& io, std::function<void(const Lines&)> send)
    : io_(io), send_(std::move(send)) {}

AgentLines::~AgentLines() = default;

uint64_t size_in_window(const Lines& lines) {
  uint64_t bytes = 0;
  for (const Lines::Line& line : lines.lines) bytes += line.text.size() + kLineBytes;
  return bytes;
}

LineTarget& AgentLines::of(int rank, bool error, bool progress) {
  auto& target = targets_[{rank, error}];
  if (!target) target = std::make_unique<Target>(*this, rank, error, progress);
  return *target;
}

void AgentLines::take(Lines::Line line) {
  if (dropping_) return;
  if (waiting_.lines.empty()) boost::asio::post(io_, [this] { flush(); });
  waiting_bytes_ += line.text.size() + kLineBytes;
  waiting_.lines.push_back(std::move(line));
  if (waiting_bytes_ >= kMessageBytes) flush();
}

void AgentLines::flush() {
  if (waiting_.lines.empty()) return;
  in_window_ += std::exchange(waiting_bytes_, 0);
  send_(std::exchange(waiting_, {}));
}

void AgentLines::on_taken(uint64_t bytes) {
  in_window_ -= std::min(in_window_, bytes);
  if (full()) return;
  for (const auto& callback : std::exchange(when_empty_, {})) callback();
}

void AgentLines::drop_all() {
  dropping_ = true;
  waiting_.lines.clear();
  waiting_bytes_ = 0;
  on_taken(in_window_);
}

}  // namespace zeroth::launcher
