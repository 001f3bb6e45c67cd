#include "comm/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <stop_token>
#include <utility>

#include "base/error.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

// A peer that is gone may have ended well, with its last data still on the way.
constexpr std::chrono::seconds kGrace{2};

// In which somebody may read the message.
constexpr std::chrono::seconds kLastWords{5};

[[noreturn]] void terminate(const std::string& message) {
  std::thread([] {
    std::this_thread::sleep_for(kLastWords);
    ::raise(SIGABRT);
  }).detach();
  // Passes every handler, also that of look(), and names the message.
  std::thread([&] { throw Error(message); }).join();
  std::terminate();
}

}  // namespace

Watchdog::Watchdog(std::chrono::milliseconds limit, OnStuck on_stuck,
                   std::function<void()> on_thread_start)
    : limit_(limit),
      glance_(std::min(kGlance, limit)),
      on_stuck_(on_stuck ? std::move(on_stuck) : OnStuck(terminate)),
      on_thread_start_(std::move(on_thread_start)),
      looks_(repeat(&Watchdog::look)),
      times_(repeat(&Watchdog::check_time)) {}

Watchdog::~Watchdog() = default;

std::jthread Watchdog::repeat(void (Watchdog::*task)()) {
  return std::jthread([this, task](const std::stop_token& stop) {
    if (on_thread_start_) on_thread_start_();
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      never.wait_for(lock, stop, glance_, [] { return false; });
      (this->*task)();
    }
  });
}

void Watchdog::watch(Watched watched) {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) front_time_ = {};
  queue_.push_back(std::make_shared<Watched>(std::move(watched)));
}

std::shared_ptr<void> Watchdog::guard(std::function<std::string(const std::string&)> message) {
  const auto over = std::make_shared<std::atomic<bool>>(false);
  Watched watched;
  watched.ended = [over] { return over->load(); };
  watched.message = std::move(message);
  watch(std::move(watched));
  return {over.get(), [over](void*) { over->store(true); }};
}

std::shared_ptr<Watchdog::Watched> Watchdog::front() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() ? nullptr : queue_.front();
}

void Watchdog::look() {
  try {
    std::shared_ptr<Watched> first = front();
    for (; first && first->ended(); first = front()) {
      first->at_end();
      const std::lock_guard lock(mutex_);
      queue_.pop_front();
      front_time_ = {};
    }
    const std::string lost = first ? first->lost() : "";
    if (lost.empty()) {
      lost_since_ = Clock::time_point::max();
    } else if (lost_since_ == Clock::time_point::max()) {
      lost_since_ = Clock::now();
    } else if (Clock::now() - lost_since_ >= std::min<Clock::duration>(kGrace, limit_)) {
      give_up(*first, lost);
    }
  } catch (const std::exception&) {  // the device has failed, which the host will meet itself
    const std::lock_guard lock(mutex_);
    queue_.clear();
  }
}

void Watchdog::check_time() {
  std::shared_ptr<Watched> first;
  std::chrono::milliseconds waited{};
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return;
    first = queue_.front();
    waited = front_time_.passed();
  }
  if (waited >= limit_) give_up(*first, time_limit_text(waited));
}

void Watchdog::give_up(const Watched& watched, const std::string& why) {
  if (!given_up_.exchange(true)) on_stuck_(watched.message(why));
}

}  // namespace zeroth::comm
