#include "comm/watchdog.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"

namespace zeroth::comm {
namespace {

constexpr std::chrono::milliseconds kGlance{100};
// A peer that is gone may have ended well, with its last data still on the way.
constexpr std::chrono::seconds kGrace{2};

[[noreturn]] void terminate(const std::string& message) {
  throw Error(message);  // on a thread without a handler
}

}  // namespace

Watchdog::Watchdog(std::chrono::milliseconds limit, OnStuck on_stuck)
    : limit_(limit),
      on_stuck_(on_stuck ? std::move(on_stuck) : OnStuck(terminate)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Watchdog::~Watchdog() = default;

void Watchdog::watch(Watched watched) {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) front_since_ = Clock::now();
  queue_.push_back(std::move(watched));
}

std::shared_ptr<void> Watchdog::guard(std::function<std::string(const std::string&)> message) {
  const auto over = std::make_shared<std::atomic<bool>>(false);
  Watched watched;
  watched.ended = [over] { return over->load(); };
  watched.message = std::move(message);
  watch(std::move(watched));
  return {over.get(), [over](void*) { over->store(true); }};
}

void Watchdog::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    changed_.wait_for(lock, stop, std::min(kGlance, limit_), [] { return false; });
    look();
  }
}

void Watchdog::look() {
  try {
    while (!queue_.empty() && queue_.front().ended()) {
      queue_.front().at_end();
      queue_.pop_front();
      front_since_ = Clock::now();
    }
  } catch (const std::exception&) {  // the device has failed, which the host will meet itself
    queue_.clear();
  }
  if (queue_.empty()) return;
  const Watched& front = queue_.front();
  const auto waited = Clock::now() - front_since_;
  const double seconds = std::chrono::duration<double>(waited).count();
  const std::string lost = waited >= std::min<Clock::duration>(kGrace, limit_) ? front.lost() : "";
  if (!lost.empty()) on_stuck_(front.message(lost));
  if (waited < limit_) return;
  on_stuck_(front.message(
      fmt::format("waited {:.3g} s, the time limit (--timeout, DEEPSPEED_TIMEOUT)", seconds)));
}

}  // namespace zeroth::comm
