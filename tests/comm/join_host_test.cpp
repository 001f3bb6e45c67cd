#include "comm/join_host.h"

#include <doctest/doctest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"

namespace zeroth::comm {

TEST_CASE("all ranks of a host get one segment") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  HostSegment hosts[3];
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] { hosts[rank] = join_host(*store, "host", rank, 3, 4096); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const HostSegment& host : hosts) REQUIRE(host.segment);
  hosts[2].segment->data()[7] = std::byte{9};
  CHECK(hosts[0].segment->data()[7] == std::byte{9});
  CHECK(hosts[1].segment->data()[7] == std::byte{9});
}

TEST_CASE("when one rank cannot share memory none does, and all know why") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto text = [](const char* value) {
    return std::vector<uint8_t>(value, value + std::string_view(value).size());
  };
  HostSegment first, second;
  std::thread other([&] { second = join_host(*store, "host", 1, 3, 4096); });
  store->set("host/2", text("its creator runs on another host"));  // plays rank 2
  first = join_host(*store, "host", 0, 3, 4096);
  other.join();
  CHECK_FALSE(first.segment);
  CHECK_FALSE(second.segment);
  CHECK(first.why_not == "rank 2: its creator runs on another host");
  CHECK(second.why_not == first.why_not);
}

TEST_CASE("a rank that does not come is named") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(std::chrono::milliseconds(200));
  CHECK_THROWS_WITH_AS(join_host(*store, "host", 0, 2, 4096),
                       doctest::Contains("rank 0: rank 1 did not connect"), Error);
}

}  // namespace zeroth::comm
