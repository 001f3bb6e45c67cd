#include "launcher/machine/near_cores.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/fake_system.h"

namespace zeroth::launcher {
namespace {

using Near = std::map<std::string, std::vector<int>>;

GpuReport::Gpu gpu_at(const std::string& address, const std::string& uuid) {
  GpuReport::Gpu gpu;
  gpu.uuid = uuid;
  gpu.pci_address = address;
  return gpu;
}

const std::vector<GpuReport::Gpu> kTwoGpus = {gpu_at("0000:3b:00.0", "GPU-12ab"),
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

TEST_CASE("a GPU is near to the cores of its NUMA node, in the order given") {
  const TwoNodes system;
  CHECK(near_cores({"0", "1"}, kTwoGpus, {0, 4, 1, 5, 2, 6, 3, 7}, system.root()) ==
        Near{{"0", {1, 5, 3, 7}}, {"1", {0, 4, 2, 6}}});
  CHECK(near_cores({"1"}, kTwoGpus, {0, 1, 2}, system.root()) == Near{{"1", {0, 2}}});
}

TEST_CASE("UUIDs name GPUs by their beginning, if it is that of one alone") {
  const TwoNodes system;
  CHECK(near_cores({"GPU-34cd", "GPU-1"}, kTwoGpus, {0, 1}, system.root()) ==
        Near{{"GPU-34cd", {0}}, {"GPU-1", {1}}});
  CHECK(near_cores({"GPU-", "GPU-5", "MIG-12ab"}, kTwoGpus, {0, 1}, system.root()).empty());
}

TEST_CASE("a GPU is absent where its node or its cores are not known") {
  const TwoNodes system;
  CHECK(near_cores({"2"}, kTwoGpus, {0, 1}, system.root()).empty());
  CHECK(near_cores({"0"}, {GpuReport::Gpu{}}, {0, 1}, system.root()).empty());
  CHECK(near_cores({"0"}, kTwoGpus, {0, 2}, system.root()).empty());  // none of node 1
  for (const char* node : {"-1\n", "", "7\n"}) {
    CAPTURE(node);
    system.put("0000:3b:00.0", node);
    CHECK(near_cores({"0"}, kTwoGpus, {0, 1}, system.root()).empty());
  }
  const FakeSystem bare;
  CHECK(near_cores({"0", "1"}, kTwoGpus, {0, 1}, bare.root()).empty());
}

}  // namespace zeroth::launcher
