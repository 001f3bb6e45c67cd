#include "launcher/cluster/host_watch.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace zeroth::launcher {
namespace {

using std::chrono::milliseconds;
using Names = std::vector<std::string>;

const HostSlots kOne{"one", {0}}, kTwo{"two", {0, 1}}, kThree{"three", {0}};
constexpr milliseconds kAgain{1000};

Names to_try(HostWatch& watch, int passed_ms, const Names& there) {
  Names names;
  for (const HostSlots& host : watch.to_try(milliseconds(passed_ms), [&](const HostSlots& known) {
         return std::find(there.begin(), there.end(), known.host) != there.end();
       }))
    names.push_back(host.host);
  return names;
}

}  // namespace

TEST_CASE("a host that is missing is tried again from time to time") {
  HostWatch watch({kOne, kTwo}, kAgain);
  CHECK(to_try(watch, 900, {"one"}) == Names{});
  CHECK(to_try(watch, 900, {"one"}) == Names{"two"});
  CHECK(to_try(watch, 900, {"one", "two"}) == Names{});
  CHECK(to_try(watch, 900, {"one"}) == Names{});
}

TEST_CASE("a host that is new in the hostfile is tried at once, one that has left it never") {
  HostWatch watch({kOne, kTwo}, kAgain);
  watch.set_wanted({kThree, kOne});
  CHECK(to_try(watch, 0, {"one"}) == Names{"three"});
  CHECK(to_try(watch, 5000, {"one", "three"}) == Names{});
  CHECK_FALSE(watch.is_wanted(kTwo));
  CHECK(watch.is_wanted(kOne));
  CHECK(watch.is_wanted({"joined", {0}}));
  watch.set_wanted({kOne, kTwo});
  CHECK(watch.is_wanted(kTwo));
}

TEST_CASE("ranks are in the hostfile's order, then in that in which hosts have joined") {
  HostWatch watch({kOne, kTwo}, kAgain);
  const std::vector<HostSlots> hosts = {kOne, kTwo, {"b", {0}}, {"a", {0}}, kOne};
  std::vector<int> nodes = {1, 2, 3, 4};
  watch.sort(nodes, hosts);
  CHECK(nodes == std::vector<int>{4, 1, 2, 3});
}

TEST_CASE("the pause between two tries doubles until the host has stayed for long") {
  HostWatch watch({kOne}, kAgain);
  std::vector<int> seconds;
  for (int second = 1; second <= 80; ++second)
    if (!to_try(watch, 1000, {}).empty()) seconds.push_back(second);
  CHECK(seconds == std::vector<int>{1, 3, 7, 15, 31, 47, 63, 79});
  CHECK(to_try(watch, 9000, {"one"}).empty());
  CHECK(to_try(watch, 15'000, {}).empty());  // it was there, but not for long
  CHECK(to_try(watch, 10'000, {"one"}).empty());
  CHECK(to_try(watch, 1000, {}) == Names{"one"});
}

TEST_CASE("a host that comes and goes has to stay longer each time") {
  HostWatch watch({kOne}, kAgain);
  const milliseconds stay(100), tick(1);
  CHECK_FALSE(watch.has_stayed(1, stay));
  int node = 0;
  for (const int needed : {100, 200, 400, 800, 1600, 1600}) {
    CAPTURE(needed);
    ++node;  // the same name each time, and a steady host beside it
    watch.note_there(milliseconds(needed - 1), {{0, "one"}, {node, "b"}});
    CHECK_FALSE(watch.has_stayed(node, stay));
    watch.note_there(tick, {{0, "one"}, {node, "b"}});
    CHECK(watch.has_stayed(node, stay));
    CHECK(watch.is_restless(node) == (needed >= 400));
    watch.note_there(tick, {{0, "one"}});
    CHECK_FALSE(watch.has_stayed(node, stay));
  }
  CHECK_FALSE(watch.is_restless(0));
  watch.note_there(milliseconds(10'000), {{8, "b"}});
  CHECK_FALSE(watch.is_restless(8));
  watch.note_there(tick, {});
  watch.note_there(stay, {{9, "b"}});
  CHECK(watch.has_stayed(9, stay));
}

}  // namespace zeroth::launcher
