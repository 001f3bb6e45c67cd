#include "comm/groups/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <stop_token>
#include <utility>

#include "base/error.h"

namespace zeroth::comm {
namespace {

// A lost peer may have exited normally, with its last data still in flight.
constexpr std::chrono::seconds kGrace{2};

// Time for a reader of the message.
constexpr std::chrono::seconds kMessageGrace{5};

[[noreturn]] void terminate(const std::string& message) {
  std::thread([] {
    std::this_thread::sleep_for(kMessageGrace);
    ::raise(SIGABRT);
  }).detach();
  // This skips every handler, also that of poll(), and prints the message.
  std::thread([&] { throw Error(message); }).join();
  std::terminate();
}

}  // namespace

Watchdog::Watchdog(std::chrono::milliseconds limit, HangHandler on_hang,
                   std::function<void()> on_thread_start)
    : limit_(limit),
      poll_interval_(std::min(kPollInterval, limit)),
      on_hang_(on_hang ? std::move(on_hang) : HangHandler(terminate)),
      on_thread_start_(std::move(on_thread_start)),
      poll_thread_(repeat(&Watchdog::poll)),
      timeout_thread_(repeat(&Watchdog::check_timeout)) {}

Watchdog::~Watchdog() = default;

std::jthread Watchdog::repeat(void (Watchdog::*task)()) {
  return std::jthread([this, task](const std::stop_token& stop) {
    if (on_thread_start_) on_thread_start_();
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      never.wait_for(lock, stop, poll_interval_, [] { return false; });
      (this->*task)();
    }
  });
}

void Watchdog::watch(WatchedWork work_item) {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) front_time_ = {};
  queue_.push_back(std::make_shared<WatchedWork>(std::move(work_item)));
}

std::shared_ptr<void> Watchdog::guard(std::function<std::string(const std::string&)> message) {
  const auto is_over = std::make_shared<std::atomic<bool>>(false);
  WatchedWork work_item;
  work_item.ended = [is_over] { return is_over->load(); };
  work_item.message = std::move(message);
  watch(std::move(work_item));
  return {is_over.get(), [is_over](void*) { is_over->store(true); }};
}

std::shared_ptr<Watchdog::WatchedWork> Watchdog::front() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() ? nullptr : queue_.front();
}

void Watchdog::poll() {
  try {
    std::shared_ptr<WatchedWork> first = front();
    for (; first && first->ended(); first = front()) {
      first->on_done();
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
  } catch (const std::exception&) {  // the device has failed, which the CPU will notice itself
    const std::lock_guard lock(mutex_);
    queue_.clear();
  }
}

void Watchdog::check_timeout() {
  std::shared_ptr<WatchedWork> first;
  std::chrono::milliseconds waited{};
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return;
    first = queue_.front();
    waited = front_time_.elapsed();
  }
  if (waited >= limit_) give_up(*first, timeout_message(waited));
}

void Watchdog::give_up(const WatchedWork& work_item, const std::string& why) {
  if (!given_up_.exchange(true)) on_hang_(work_item.message(why));
}

}  // namespace zeroth::comm
