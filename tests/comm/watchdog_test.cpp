#include "comm/groups/watchdog.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "tests/support/child_process.h"
#include "tests/support/waited.h"

namespace zeroth::comm::watchdog_test {
namespace {

using std::chrono::milliseconds;

// A watchdog whose barking ends the test's wait instead of the process.
struct Yard {
  std::promise<std::string> barked;
  std::atomic<bool> once = false;
  Watchdog dog;

  explicit Yard(milliseconds limit, std::function<void()> on_thread_start = {})
      : dog(
            limit,
            [this](const std::string& message) {
              if (!once.exchange(true)) barked.set_value(message);
            },
            std::move(on_thread_start)) {}

  // What it says within a minute, or "".
  std::string says(milliseconds limit = milliseconds(60'000)) {
    auto future = barked.get_future();
    return future.wait_for(limit) == std::future_status::ready ? future.get() : "";
  }
};

Watchdog::WatchedWork watched(const std::atomic<bool>& ended, const std::string& name) {
  Watchdog::WatchedWork watched;
  watched.ended = [&ended] { return ended.load(); };
  watched.message = [name](const std::string& why) { return name + ": " + why; };
  return watched;
}

}  // namespace

TEST_CASE("what does not end in time is named, the oldest first") {
  const std::atomic<bool> yes = true, no = false;
  Yard yard(milliseconds(2000));
  yard.dog.watch(watched(yes, "first"));
  yard.dog.watch(watched(no, "second"));
  yard.dog.watch(watched(no, "third"));
  const std::string message = yard.says();
  CHECK(message.starts_with("second: timed out after "));
  CHECK(testing::seconds_waited(message) >= 2);
}

TEST_CASE("the limit counts from the end of the one before") {
  std::atomic<bool> first = false, second = false;
  std::atomic<int> ends = 0;
  Yard yard(milliseconds(4000));  // of both together, and far more than of one
  for (const auto* ended : {&first, &second}) {
    auto item = watched(*ended, "item");
    item.on_done = [&ends] { ++ends; };
    yard.dog.watch(std::move(item));
  }
  std::this_thread::sleep_for(milliseconds(2200));
  first = true;
  std::this_thread::sleep_for(milliseconds(2200));
  second = true;
  for (int tick = 0; tick < 6000 && ends < 2; ++tick) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  CHECK(ends == 2);
  CHECK(yard.says(milliseconds(0)).empty());
}

TEST_CASE("each thread of a watchdog selects its device before it asks or says anything") {
  static thread_local bool selected = false;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> asked = 0, without_device = 0;
  const auto look = [&] {
    ++asked;
    if (!selected) ++without_device;
  };
  const auto select = [&] {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    selected = true;
  };
  Yard yard(milliseconds(1000), select);
  Watchdog::WatchedWork item;
  item.ended = [&] {
    look();
    return false;
  };
  item.lost = [&] {
    look();
    return std::string();
  };
  item.message = [&](const std::string& why) {
    look();
    return why;
  };
  yard.dog.watch(std::move(item));
  CHECK(yard.says().starts_with("timed out after "));
  CHECK(asked >= 3);
  CHECK(without_device == 0);
  const std::lock_guard lock(mutex);
  CHECK(threads.size() == 2);
}

TEST_CASE("time in which the process is suspended does not count") {
  const ChildResult result = in_child([] {
    continue_when_stopped_for(milliseconds(3000));
    const std::atomic<bool> no = false;
    Yard yard(milliseconds(2000));
    yard.dog.watch(watched(no, "item"));
    ::raise(SIGSTOP);
    return yard.says(milliseconds(500)).empty() ? 0 : 1;
  });
  CHECK(result.status == 0);
}

TEST_CASE("what cannot end any more is not waited for until the limit") {
  const std::atomic<bool> no = false;
  Yard yard(milliseconds(60'000));
  auto item = watched(no, "item");
  item.lost = [] { return "rank 1 is gone"; };
  yard.dog.watch(std::move(item));
  CHECK(yard.says() == "item: rank 1 is gone");
}

TEST_CASE("without other orders a watchdog ends the process, also where nobody reads its message") {
  for (const bool read : {true, false}) {
    const ChildResult result = in_child([read] {
      ::signal(SIGABRT, SIG_DFL);
      if (!read) fill_standard_error();
      const std::atomic<bool> no = false;
      Watchdog dog(milliseconds(100), {});
      dog.watch(watched(no, "item"));
      ::sleep(60);
      return 0;
    });
    CHECK(result.status == -SIGABRT);
    CHECK((result.err.find("item: timed out after ") != std::string::npos) == read);
  }
}

TEST_CASE("a guard watches what its thread does until it goes") {
  Yard yard(milliseconds(1000));
  const auto message = [](const std::string& why) { return "connecting: " + why; };
  { const auto guard = yard.dog.guard(message); }
  std::this_thread::sleep_for(milliseconds(1500));
  CHECK_FALSE(yard.once);
  const auto guard = yard.dog.guard(message);
  const std::string said = yard.says();
  CHECK(said.starts_with("connecting: timed out after "));
  CHECK(testing::seconds_waited(said) >= 1);
}

}  // namespace zeroth::comm::watchdog_test
