#include "base/machine/ordered_tasks.h"

#include <doctest/doctest.h>

#include <chrono>
#include <stdexcept>

namespace zeroth::ordered_tasks_test {

TEST_CASE("Results come in the order of the tasks, whatever thread is first") {
  for (const size_t threads : {1, 2, 5}) {
    std::vector<int> results;
    OrderedTasks<int> tasks(threads, [&](int result) { results.push_back(result); });
    for (int i = 0; i < 100; ++i) {
      tasks.add([i, threads](size_t thread) {
        CHECK(thread < threads);
        if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return i;
      });
    }
    tasks.finish();
    REQUIRE(results.size() == 100);
    for (int i = 0; i < 100; ++i) CHECK(results[i] == i);
  }
}

TEST_CASE("The first exception in the order of the tasks is the one that is thrown") {
  int consumed = 0;
  OrderedTasks<int> tasks(4, [&](int) { ++consumed; });
  const auto add_all = [&] {
    for (int i = 0; i < 50; ++i) {
      tasks.add([i](size_t) {
        if (i == 20) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (i >= 20) throw std::runtime_error(std::to_string(i));
        return i;
      });
    }
    tasks.finish();
  };
  CHECK_THROWS_WITH(add_all(), "20");
  CHECK(consumed == 20);
}

}  // namespace zeroth::ordered_tasks_test
