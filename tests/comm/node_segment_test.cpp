#include "comm/nodes/node_segment.h"

#include <doctest/doctest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"
#include "base/machine/memory_file.h"
#include "tests/support/second_user.h"

namespace zeroth::comm::node_segment_test {
namespace {

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

// What rank 1 of 2 says when a stranger has answered for rank 0.
std::string follow(const std::string& ticket) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->set("host/ticket", bytes(ticket));
  store->set("host/verdict", bytes("ok"));
  try {
    join_node_segment(*store, "run", 1, 2, 4096);
  } catch (const Error& error) {
    return error.what();
  }
  return "it joined";
}

}  // namespace

TEST_CASE("all ranks of a host get one segment") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  NodeSegment nodes[3];
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back(
        [&, rank] { nodes[rank] = join_node_segment(*store, "host", rank, 3, 4096); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const NodeSegment& host : nodes) REQUIRE(host.segment);
  nodes[2].segment->data()[7] = std::byte{9};
  CHECK(nodes[0].segment->data()[7] == std::byte{9});
  CHECK(nodes[1].segment->data()[7] == std::byte{9});
}

TEST_CASE("when one rank cannot share memory none does, and all know why") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  NodeSegment first, second;
  std::thread other([&] { second = join_node_segment(*store, "host", 1, 3, 4096); });
  store->set("host/2", bytes("its creator runs on another host"));  // plays rank 2
  first = join_node_segment(*store, "host", 0, 3, 4096);
  other.join();
  CHECK_FALSE(first.segment);
  CHECK_FALSE(second.segment);
  CHECK(first.failure_reason == "rank 2: its creator runs on another host");
  CHECK(second.failure_reason == first.failure_reason);
}

TEST_CASE("a rank that does not come is named") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(std::chrono::milliseconds(200));
  CHECK_THROWS_WITH_AS(join_node_segment(*store, "host", 0, 2, 4096),
                       doctest::Contains("rank 0: rank 1 did not connect"), Error);
}

TEST_CASE("a ticket to another user's memory is refused, with rank and reason" * in_neighbours) {
  if (!may_become_nobody()) return;
  const Nobody stranger([] {
    static MemoryFile file = MemoryFile::create("zeroth:run");
    file.seal_size(4096);
    return file.ticket();
  });
  const std::string message = follow(stranger.said());
  CAPTURE(message);
  CHECK(message.starts_with("rank 1: cannot open the memory that the other ranks share: /proc/"));
  CHECK(message.ends_with(" belongs to user 65534, not to this process's user 0"));
}

TEST_CASE("a ticket to memory of another run of this user, or of another size, is refused") {
  const auto other = SharedSegment::create(4096, "another run");
  CHECK(follow(other->ticket()).find("is not the shared memory 'zeroth:run'") != std::string::npos);
  const auto small = SharedSegment::create(64, "run");
  CHECK(follow(small->ticket()).ends_with("has 64 bytes, but 4096 were agreed on"));
  CHECK(follow("1:2").ends_with("invalid ticket of shared memory"));
  const auto closed = SharedSegment::create(4096, "run");
  const std::string late = closed->ticket();
  closed->close();
  CHECK(follow(late).find("cannot open /proc/") != std::string::npos);
}

}  // namespace zeroth::comm::node_segment_test
