#include "launcher/cluster/agent_pool.h"

#include <doctest/doctest.h>

#include <vector>

namespace zeroth::launcher::log_throttle_test {

TEST_CASE("the same line comes again after a pause that doubles up to an hour, with its number") {
  LogThrottle lines;
  std::vector<int> minutes;
  std::string last;
  for (int second = 0; second <= 6 * 3600; second += 30) {
    const auto text = lines.pass("no route", std::chrono::seconds(second));
    if (!text) continue;
    minutes.push_back(second / 60);
    last = *text;
  }
  CHECK(minutes == std::vector<int>{0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303});
  CHECK(last == "no route (and 119 more times since)");
}

TEST_CASE("other lines are not held back, and what is remembered has an end") {
  LogThrottle lines;
  const std::chrono::seconds now(5);
  for (int i = 0; i < 5000; ++i) CHECK(lines.pass("line " + std::to_string(i), now));
  CHECK(lines.pass("line 0", now));  // forgotten meanwhile
  CHECK_FALSE(lines.pass("line 0", now));
}

}  // namespace zeroth::launcher::log_throttle_test
