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

}  // namespace zeroth::launcher
