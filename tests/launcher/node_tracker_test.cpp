#include "launcher/cluster/node_tracker.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace zeroth::launcher::node_tracker_test {
namespace {

using std::chrono::milliseconds;
using Names = std::vector<std::string>;

const HostSlots kOne{"one", {0}}, kTwo{"two", {0, 1}}, kThree{"three", {0}};
constexpr milliseconds kAgain{1000};

Names hosts_to_retry(NodeTracker& watch, int passed_ms, const Names& there) {
  Names names;
  for (const HostSlots& host :
       watch.hosts_to_retry(milliseconds(passed_ms), [&](const HostSlots& known) {
         return std::find(there.begin(), there.end(), known.host) != there.end();
       }))
    names.push_back(host.host);
  return names;
}

}  // namespace

TEST_CASE("a host that is missing is tried again from time to time") {
  NodeTracker watch({kOne, kTwo}, kAgain);
  CHECK(hosts_to_retry(watch, 900, {"one"}) == Names{});
  CHECK(hosts_to_retry(watch, 900, {"one"}) == Names{"two"});
  CHECK(hosts_to_retry(watch, 900, {"one", "two"}) == Names{});
  CHECK(hosts_to_retry(watch, 900, {"one"}) == Names{});
}

TEST_CASE("a host that is new in the hostfile is tried at once, one that has left it never") {
  NodeTracker watch({kOne, kTwo}, kAgain);
  watch.set_hostfile({kThree, kOne});
  CHECK(hosts_to_retry(watch, 0, {"one"}) == Names{"three"});
  CHECK(hosts_to_retry(watch, 5000, {"one", "three"}) == Names{});
  CHECK_FALSE(watch.is_eligible(kTwo));
  CHECK(watch.is_eligible(kOne));
  CHECK(watch.is_eligible({"joined", {0}}));
  watch.set_hostfile({kOne, kTwo});
  CHECK(watch.is_eligible(kTwo));
}

TEST_CASE("ranks are in the hostfile's order, then in that in which hosts have joined") {
  NodeTracker watch({kOne, kTwo}, kAgain);
  const std::vector<HostSlots> hosts = {kOne, kTwo, {"b", {0}}, {"a", {0}}, kOne};
  std::vector<int> nodes = {1, 2, 3, 4};
  watch.sort(nodes, hosts);
  CHECK(nodes == std::vector<int>{4, 1, 2, 3});
}

TEST_CASE("the pause between two tries doubles until the host has stayed for long") {
  NodeTracker watch({kOne}, kAgain);
  std::vector<int> seconds;
  for (int second = 1; second <= 80; ++second)
    if (!hosts_to_retry(watch, 1000, {}).empty()) seconds.push_back(second);
  CHECK(seconds == std::vector<int>{1, 3, 7, 15, 31, 47, 63, 79});
  CHECK(hosts_to_retry(watch, 9000, {"one"}).empty());
  CHECK(hosts_to_retry(watch, 15'000, {}).empty());  // it was there, but not for long
  CHECK(hosts_to_retry(watch, 10'000, {"one"}).empty());
  CHECK(hosts_to_retry(watch, 1000, {}) == Names{"one"});
}

TEST_CASE("a host that comes and goes has to stay longer each time") {
  NodeTracker watch({kOne}, kAgain);
  const milliseconds stable_time(100), tick(1);
  CHECK_FALSE(watch.is_stable(1, stable_time));
  int node = 0;
  for (const int needed : {100, 200, 400, 800, 1600, 1600}) {
    CAPTURE(needed);
    ++node;  // the same name each time, and a steady host beside it
    watch.update_present(milliseconds(needed - 1), {{0, "one"}, {node, "b"}});
    CHECK_FALSE(watch.is_stable(node, stable_time));
    watch.update_present(tick, {{0, "one"}, {node, "b"}});
    CHECK(watch.is_stable(node, stable_time));
    CHECK(watch.is_flapping(node) == (needed >= 400));
    watch.update_present(tick, {{0, "one"}});
    CHECK_FALSE(watch.is_stable(node, stable_time));
  }
  CHECK_FALSE(watch.is_flapping(0));
  watch.update_present(milliseconds(10'000), {{8, "b"}});
  CHECK_FALSE(watch.is_flapping(8));
  watch.update_present(tick, {});
  watch.update_present(stable_time, {{9, "b"}});
  CHECK(watch.is_stable(9, stable_time));
}

}  // namespace zeroth::launcher::node_tracker_test
