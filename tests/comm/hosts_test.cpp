#include "comm/hosts.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace zeroth::comm {
namespace {

using Rows = std::vector<std::vector<int>>;

const Hosts kTwoByTwo = {{"a", {0, 1}}, {"b", {2, 3}}};
const Hosts kInTurn = {{"a", {0, 2}}, {"b", {1, 3}}};
const Hosts kUneven = {{"a", {0, 1, 2}}, {"b", {3}}};

}  // namespace

TEST_CASE("ranks with equal cards are on one machine, and machines of one name are told apart") {
  const Hosts hosts = hosts_of({{"1", "node"}, {"2", "node"}, {"1", "node"}, {"3", "other"}});
  REQUIRE(hosts.size() == 3);
  CHECK(hosts[0].ranks == std::vector{0, 2});
  CHECK(hosts[1].ranks == std::vector{1});
  CHECK(hosts[0].name == "node (0)");
  CHECK(hosts[1].name == "node (1)");
  CHECK(hosts[2].name == "other");
  CHECK(name_on_host(hosts, 2) == "rank 2 on node (0)");
}

TEST_CASE("few machines are listed, many counted") {
  CHECK(list_of(kUneven) == "a (ranks 0, 1, 2), b (rank 3)");
  Hosts many;
  for (int host = 0; host < 9; ++host) many.push_back({"n", {2 * host, 2 * host + 1}});
  CHECK(list_of(many) == "9 (2 ranks each)");
  many.back().ranks.push_back(18);
  CHECK(list_of(many) == "9 (2 to 3 ranks each)");
}

TEST_CASE("a group knows where its ranks stand on machines") {
  const HostLayout world = layout_of({0, 1, 2, 3}, kTwoByTwo, 3);
  CHECK(world.hosts == Rows{{0, 1}, {2, 3}});
  CHECK(world.host == 1);
  CHECK(world.local == 1);
  CHECK(world.in_order());
  const HostLayout column = layout_of({1, 3}, kTwoByTwo, 3);
  CHECK(column.hosts == Rows{{0}, {1}});
  CHECK(column.host == 1);
  const HostLayout row = layout_of({2, 3}, kTwoByTwo, 2);
  CHECK(row.hosts == Rows{{0, 1}});
  const HostLayout in_turn = layout_of({0, 1, 2, 3}, kInTurn, 2);
  CHECK(in_turn.hosts == Rows{{0, 2}, {1, 3}});
  CHECK_FALSE(in_turn.in_order());
  CHECK(in_turn.host == 0);
  CHECK(in_turn.local == 1);
}

TEST_CASE("with unequally many ranks each counts as a machine") {
  const HostLayout layout = layout_of({0, 1, 2, 3}, kUneven, 2);
  CHECK(layout.hosts == Rows{{0}, {1}, {2}, {3}});
  CHECK(layout.host == 2);
  CHECK(layout.local == 0);
  CHECK(layout_of({0, 1}, kUneven, 1).hosts == Rows{{0, 1}});
  CHECK(layout_of({0, 3}, kUneven, 3).hosts == Rows{{0}, {1}});
}

}  // namespace zeroth::comm
