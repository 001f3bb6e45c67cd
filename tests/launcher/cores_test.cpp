#include "launcher/machine/cores.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.h"
#include "tests/support/fake_system.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher::cores_test {
namespace {

using Near = std::map<std::string, std::vector<int>>;

GpuReport::GpuInfo gpu_at(const std::string& address, const std::string& uuid) {
  GpuReport::GpuInfo gpu;
  gpu.uuid = uuid;
  gpu.pci_address = address;
  return gpu;
}

const std::vector<GpuReport::GpuInfo> kTwoGpus = {gpu_at("0000:3b:00.0", "GPU-12ab"),
                                                  gpu_at("0001:d8:00.0", "GPU-34cd")};

// Two nodes of four cores: node 0 has the even ones. GPU 0 is on node 1, GPU 1 on node 0.
class TwoNodes : public FakeSystem {
 public:
  TwoNodes() {
    for (int core = 0; core < 8; ++core)
      write(fmt::format("sys/devices/system/cpu/cpu{}/node{}/cpulist", core, core % 2), "");
    put("0000:3b:00.0", "1\n");
    put("0001:d8:00.0", "0\n");
  }

  void put(const std::string& address, const std::string& node) const {
    write("sys/bus/pci/devices/" + address + "/numa_node", node);
  }
};

}  // namespace

using Cores = std::vector<int>;
using Parts = std::vector<std::vector<int>>;

TEST_CASE("a core list holds cores and ranges in its own order") {
  const Cores allowed = {0, 1, 2, 3, 8, 9};
  CHECK(parse_core_list("0-3,8", allowed) == Cores{0, 1, 2, 3, 8});
  CHECK(parse_core_list("9,1-1", allowed) == Cores{9, 1});
}

TEST_CASE("a core list that is wrong or leaves the process's cores is refused") {
  const Cores allowed = {0, 1, 2};
  for (const char* text : {"a", "1-", "-1", "", "1,,2", "2-1", "0 1", "1.5"})
    CHECK_THROWS_AS(parse_core_list(text, allowed), UsageError);
  CHECK_THROWS_WITH(parse_core_list("1-3", allowed),
                    "--bind_core_list 1-3: core 3 is not available; available are 0,1,2");
  CHECK_THROWS_WITH(parse_core_list("0,0", allowed), "--bind_core_list 0,0: core 0 is repeated");
}

TEST_CASE("of a long core list a message shows its beginning") {
  const std::string digits(10'000, '1');
  for (const std::string& text : {digits, "0," + digits, digits + "-", "2-1," + digits}) {
    const std::string said =
        message_of<UsageError>([&] { parse_core_list(text, Cores(10'000, 2)); });
    CHECK(said.find("... (1000") != std::string::npos);
    CHECK(said.size() < 400);
  }
}

TEST_CASE("cores are split into contiguous ranges of nearly equal size") {
  CHECK(split_cores({0, 1, 2, 3}, Parts(1)) == Parts{{0, 1, 2, 3}});
  CHECK(split_cores({0, 1, 2, 3}, Parts(2)) == Parts{{0, 1}, {2, 3}});
  CHECK(split_cores({4, 5, 6, 9, 11}, Parts(2)) == Parts{{4, 5, 6}, {9, 11}});
  CHECK(split_cores({0, 1, 2, 3, 4}, Parts(4)) == Parts{{0, 1}, {2}, {3}, {4}});
}

TEST_CASE("with fewer cores than parts each part gets all") {
  CHECK(split_cores({0, 1}, Parts(3)) == Parts{{0, 1}, {0, 1}, {0, 1}});
  CHECK(split_cores({0, 1}, {{0}, {1}, {0}}) == Parts{{0, 1}, {0, 1}, {0, 1}});
}

TEST_CASE("parts share the cores that are near to them") {
  const Cores all = {0, 1, 2, 3, 4, 5, 6, 7};
  const Cores low = {0, 1, 2, 3}, high = {4, 5, 6, 7};
  CHECK(split_cores(all, {high, low}) == Parts{high, low});
  CHECK(split_cores(all, {high, low, high, low}) == Parts{{4, 5}, {0, 1}, {6, 7}, {2, 3}});
  CHECK(split_cores({0, 1, 2, 3, 4}, {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}) ==
        Parts{{0, 1, 2}, {3, 4}});
}

TEST_CASE("near cores come first, and are filled up from the rest to an equal part") {
  const Cores all = {0, 1, 2, 3, 4, 5, 6, 7};
  const Cores low = {0, 1, 2, 3}, high = {4, 5, 6, 7};
  CHECK(split_cores(all, {high}) == Parts{{4, 5, 6, 7, 0, 1, 2, 3}});
  CHECK(split_cores(all, {high, high}) == Parts{{4, 5, 0, 1}, {6, 7, 2, 3}});
  CHECK(split_cores(all, {low, high, low}) == Parts{{0, 1, 7}, {4, 5, 6}, {2, 3}});
  CHECK(split_cores(all, {{7}, {7}, {7}, {7}}) == Parts{{7, 0}, {1, 2}, {3, 4}, {5, 6}});
}

TEST_CASE("a part of which nothing is known gets what the others leave") {
  const Cores all = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(split_cores(all, {{}, {0, 1, 2, 3}}) == Parts{{4, 5, 6, 7}, {0, 1, 2, 3}});
  CHECK(split_cores(all, {{0, 1}, {}}) == Parts{{0, 1, 2, 3}, {4, 5, 6, 7}});
}

TEST_CASE("only cores of the list are handed out") {
  CHECK(split_cores({6, 1}, {{0, 1, 2, 3}, {4, 5, 6, 7}}) == Parts{{1}, {6}});
}

TEST_CASE("a GPU is near to the cores of its NUMA node, in the order given") {
  const TwoNodes system;
  CHECK(numa_cores({"0", "1"}, kTwoGpus, {0, 4, 1, 5, 2, 6, 3, 7}, system.root()) ==
        Near{{"0", {1, 5, 3, 7}}, {"1", {0, 4, 2, 6}}});
  CHECK(numa_cores({"1"}, kTwoGpus, {0, 1, 2}, system.root()) == Near{{"1", {0, 2}}});
}

TEST_CASE("UUIDs name GPUs by their beginning, if it is that of one alone") {
  const TwoNodes system;
  CHECK(numa_cores({"GPU-34cd", "GPU-1"}, kTwoGpus, {0, 1}, system.root()) ==
        Near{{"GPU-34cd", {0}}, {"GPU-1", {1}}});
  CHECK(numa_cores({"GPU-", "GPU-5", "MIG-12ab"}, kTwoGpus, {0, 1}, system.root()).empty());
}

TEST_CASE("a GPU is absent where its node or its cores are not known") {
  const TwoNodes system;
  CHECK(numa_cores({"2"}, kTwoGpus, {0, 1}, system.root()).empty());
  CHECK(numa_cores({"0"}, {GpuReport::GpuInfo{}}, {0, 1}, system.root()).empty());
  CHECK(numa_cores({"0"}, kTwoGpus, {0, 2}, system.root()).empty());  // none of node 1
  for (const char* node : {"-1\n", "", "7\n"}) {
    CAPTURE(node);
    system.put("0000:3b:00.0", node);
    CHECK(numa_cores({"0"}, kTwoGpus, {0, 1}, system.root()).empty());
  }
  const FakeSystem bare;
  CHECK(numa_cores({"0", "1"}, kTwoGpus, {0, 1}, bare.root()).empty());
}

}  // namespace zeroth::launcher::cores_test
