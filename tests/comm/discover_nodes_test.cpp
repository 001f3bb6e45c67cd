#include "comm/discover_nodes.h"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm::discover_nodes_test {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

std::vector<NodeMemory> share_on(const Store& store, const std::vector<std::string>& machines) {
  std::vector<NodeMemory> shared(machines.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      const auto size = static_cast<int>(machines.size());
      const Nodes found =
          discover_nodes(*store, static_cast<int>(rank), size, local_node_identity(machines[rank]));
      shared[rank] =
          share_node_memory(store, "run", static_cast<int>(rank), found, RingSize::for_ranks);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return shared;
}

}  // namespace

TEST_CASE("a machine is its kernel and its processes' namespace, or what it is told to be") {
  const NodeIdentity identity = local_node_identity(std::nullopt);
  CHECK(identity.id == local_node_identity(std::nullopt).id);
  CHECK(identity.id.size() > 36);  // a boot's id has so many characters
  CHECK_FALSE(identity.name.empty());
  CHECK(local_node_identity("left").id != local_node_identity("right").id);
  CHECK(local_node_identity("left").name == "left");
}

TEST_CASE("ranks find those on their machine and share memory with them alone") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto shared = share_on(store, {"a", "b", "a", "c"});
  for (const NodeMemory& one : shared) {
    CHECK(one.failure_reason.empty());
    CHECK(describe_nodes(one.nodes) == "a (ranks 0, 2), b (rank 1), c (rank 3)");
    REQUIRE(one.segment);
  }
  shared[0].segment->data()[0] = std::byte{7};
  CHECK(shared[2].segment->data()[0] == std::byte{7});
  CHECK(shared[1].segment->data()[0] == std::byte{0});
  CHECK(shared[1].segment->ticket().empty());
}

TEST_CASE("where a machine cannot share memory its ranks count as machines, and all know why") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const std::string closed = "closed";
  store->set("of/2/host/1", std::vector<uint8_t>(closed.begin(), closed.end()));  // plays rank 3
  std::vector<NodeMemory> shared(4);
  std::vector<std::thread> ranks;
  const Nodes found = {{"a", {0, 1}}, {"b", {2, 3}}};
  for (const int rank : {0, 1, 2}) {
    ranks.emplace_back([&, rank] {
      shared[static_cast<size_t>(rank)] =
          share_node_memory(store, "run", rank, found, RingSize::for_ranks);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const int rank : {0, 1, 2}) {
    const NodeMemory& one = shared[static_cast<size_t>(rank)];
    CHECK(one.failure_reason == "b: rank 3: closed");
    CHECK(describe_nodes(one.nodes) == "a (ranks 0, 1), b (rank 2), b (rank 3)");
    CHECK(one.segment);
  }
}

TEST_CASE("what rank 0 tells is not believed where it does not fit") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const std::string two = "id\nname\nid\nname";
  store->set("hosts/all", std::vector<uint8_t>(two.begin(), two.end()));
  CHECK(message_of<Error>([&] { discover_nodes(*store, 1, 3, local_node_identity("a")); }) ==
        "rank 1 of 3: rank 0 lists the machines of 2 ranks");
}

TEST_CASE("a rank that does not come is named") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(std::chrono::milliseconds(200));
  CHECK_THROWS_WITH_AS(discover_nodes(*store, 0, 2, local_node_identity("a")),
                       doctest::Contains("rank 0: rank 1 did not connect"), Error);
}

TEST_CASE("without shared memory every rank is by itself") {
  const NodeMemory node_memory = share_no_memory({{"a", {0, 2}}, {"b", {1}}}, "because");
  CHECK(describe_nodes(node_memory.nodes) == "a (rank 0), b (rank 1), a (rank 2)");
  CHECK(node_memory.failure_reason == "because");
  CHECK(node_memory.segment);
}

}  // namespace zeroth::comm::discover_nodes_test
