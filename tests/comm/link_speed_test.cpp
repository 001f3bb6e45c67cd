#include "comm/device_mesh.h"

#include <doctest/doctest.h>

#include "tests/support/ranks.h"

namespace zeroth::comm::link_speed_test {

TEST_CASE("speeds of links are told in the unit that fits") {
  CHECK(to_string({.intra_node = 4.1e9, .inter_node = 118e6}) ==
        "intra-node 4.1 GB/s per rank, inter-node 118 MB/s per host");
  CHECK(to_string({.intra_node = 0, .inter_node = 1.25e9}) == "inter-node 1.25 GB/s per host");
}

TEST_CASE("probes grow while they are short, and the last one is no longer than 0.08 s") {
  CHECK(next_probe_bytes(64 << 10, 0.001) == 256 << 10);
  CHECK(next_probe_bytes(64 << 10, 0.05) == 0);  // a slow link: the next one might take 0.2 s
  CHECK(next_probe_bytes(16 << 20, 0.001) == 0);
  for (const double rate : {1e6, 12e6, 1e8, 1e9, 1e11}) {
    double all = 0;
    for (int64_t bytes = 64 << 10; bytes > 0;) {
      const double seconds = static_cast<double>(bytes) / rate;
      all += seconds;
      bytes = next_probe_bytes(bytes, seconds);
    }
    CHECK(all < 0.12);  // twice, within and across: under 0.5 s
  }
}

TEST_CASE("links of two machines of two ranks, and of two with one each, are measured") {
  testing::RankOptions options;
  for (const bool alone : {false, true}) {
    options.nodes = {"a", "b"};
    if (!alone) options.nodes = {"a", "a", "b", "b"};
    testing::run_ranks(
        static_cast<int>(options.nodes.size()),
        [&](std::shared_ptr<DeviceMesh> mesh) {
          const LinkSpeed speed = measure_links(*mesh);
          CHECK(speed.inter_node > 0);
          CHECK((speed.intra_node > 0) == !alone);
        },
        options);
  }
}

}  // namespace zeroth::comm::link_speed_test
