#include "comm/nodes/nodes.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace zeroth::comm::nodes_test {
namespace {

using Rows = std::vector<std::vector<int>>;

const Nodes kTwoByTwo = {{"a", {0, 1}}, {"b", {2, 3}}};
const Nodes kInTurn = {{"a", {0, 2}}, {"b", {1, 3}}};
const Nodes kUneven = {{"a", {0, 1, 2}}, {"b", {3}}};

}  // namespace

TEST_CASE("ranks with equal cards are on one machine, and machines of one name are told apart") {
  const Nodes nodes = group_by_node({{"1", "node"}, {"2", "node"}, {"1", "node"}, {"3", "other"}});
  REQUIRE(nodes.size() == 3);
  CHECK(nodes[0].ranks == std::vector{0, 2});
  CHECK(nodes[1].ranks == std::vector{1});
  CHECK(nodes[0].name == "node (0)");
  CHECK(nodes[1].name == "node (1)");
  CHECK(nodes[2].name == "other");
  CHECK(describe_rank(nodes, 2) == "rank 2 on node (0)");
}

TEST_CASE("few machines are listed, many counted") {
  CHECK(describe_nodes(kUneven) == "a (ranks 0, 1, 2), b (rank 3)");
  Nodes many;
  for (int node = 0; node < 9; ++node) many.push_back({"n", {2 * node, 2 * node + 1}});
  CHECK(describe_nodes(many) == "9 (2 ranks each)");
  many.back().ranks.push_back(18);
  CHECK(describe_nodes(many) == "9 (2 to 3 ranks each)");
}

TEST_CASE("a group knows where its ranks stand on machines") {
  const NodeLayout world = node_layout({0, 1, 2, 3}, kTwoByTwo, 3);
  CHECK(world.nodes == Rows{{0, 1}, {2, 3}});
  CHECK(world.node == 1);
  CHECK(world.local == 1);
  CHECK(world.in_order());
  const NodeLayout column = node_layout({1, 3}, kTwoByTwo, 3);
  CHECK(column.nodes == Rows{{0}, {1}});
  CHECK(column.node == 1);
  const NodeLayout row = node_layout({2, 3}, kTwoByTwo, 2);
  CHECK(row.nodes == Rows{{0, 1}});
  const NodeLayout in_turn = node_layout({0, 1, 2, 3}, kInTurn, 2);
  CHECK(in_turn.nodes == Rows{{0, 2}, {1, 3}});
  CHECK_FALSE(in_turn.in_order());
  CHECK(in_turn.node == 0);
  CHECK(in_turn.local == 1);
}

TEST_CASE("with unequally many ranks each counts as a machine") {
  const NodeLayout layout = node_layout({0, 1, 2, 3}, kUneven, 2);
  CHECK(layout.nodes == Rows{{0}, {1}, {2}, {3}});
  CHECK(layout.node == 2);
  CHECK(layout.local == 0);
  CHECK(node_layout({0, 1}, kUneven, 1).nodes == Rows{{0, 1}});
  CHECK(node_layout({0, 3}, kUneven, 3).nodes == Rows{{0}, {1}});
}

}  // namespace zeroth::comm::nodes_test
