#include "base/machine/parallel.h"

#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace zeroth::parallel_test {

TEST_CASE("a parallel loop covers every element once, in ranges of a grain or more") {
  for (const int64_t count : {0, 1, 7, 64, 1000, 1001}) {
    std::vector<std::atomic<int>> visits(count);
    parallel_for(count, 7, [&](int64_t begin, int64_t end) {
      CHECK((end - begin >= 7 || end - begin == count));
      for (int64_t i = begin; i < end; ++i) ++visits[i];
    });
    for (const auto& visit : visits) CHECK(visit == 1);
  }
}

TEST_CASE("a parallel loop uses the machine's threads") {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  parallel_for(1000, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  const bool one_core = std::thread::hardware_concurrency() == 1;
  CHECK((one_core || seen.size() > 1));
}

TEST_CASE("a parallel loop within another runs on its caller") {
  parallel_for(100, 1, [&](int64_t, int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(100, 1, [&](int64_t begin, int64_t end) {
      CHECK(begin == 0);
      CHECK(end == 100);
      CHECK(std::this_thread::get_id() == outer);
    });
  });
}

TEST_CASE("an exception leaves a parallel loop") {
  CHECK_THROWS_AS(parallel_for(100, 1,
                               [](int64_t begin, int64_t) {
                                 if (begin == 0) throw std::runtime_error("first");
                               }),
                  std::runtime_error);
}

}  // namespace zeroth::parallel_test
