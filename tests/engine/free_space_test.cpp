#include "engine/memory/free_space.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/fake_system.h"

namespace zeroth::engine::free_space_test {

TEST_CASE("host memory is looked up, disks only where files will lie") {
  const FakeSystem system;
  system.write("proc/meminfo", "MemAvailable: 1024 kB\n");
  const FreeSpace left = free_space({}, {}, 3, system.root());
  CHECK(left.ranks == 3);
  REQUIRE(left.host);
  CHECK(left.host->bytes == 1024 * 1024);
  CHECK(left.disks.empty());
}

TEST_CASE("a disk is the one on which the folder of files will be made") {
  const FakeSystem system;
  configs::ZeroConfig config;
  config.offload_optimizer.device = configs::OffloadDevice::kNvme;
  config.offload_optimizer.nvme_path = (system.root() / "not/there/yet").string();
  const FreeSpace left = free_space(config, {}, 1);
  REQUIRE(left.disks.size() == 1);
  CHECK(left.disks.begin()->first == config.offload_optimizer.nvme_path);
  CHECK(left.disks.begin()->second.free > 0);
  CHECK(free_disk_bytes(system.root() / "not/there/yet").value_or(0) > 0);
  CHECK_FALSE(free_disk_bytes("/proc"));  // has no size
}

TEST_CASE("folders on one file system are known to be on one, and a folder not used yet is known") {
  const FakeSystem system;
  configs::ZeroConfig config;
  config.offload_optimizer.nvme_path = (system.root() / "a").string();
  config.offload_param.nvme_path = (system.root() / "b").string();
  const FreeSpace left = free_space(config, {}, 1);
  REQUIRE(left.disks.size() == 2);
  CHECK(left.disks.at(config.offload_optimizer.nvme_path).device ==
        left.disks.at(config.offload_param.nvme_path).device);
  config.offload_param.nvme_path = "/proc";
  CHECK(free_space(config, {}, 1).disks.count("/proc") == 0);  // has no size
}

TEST_CASE("a folder of files that cannot be made is told by its key before anything else is") {
  configs::ZeroConfig config;
  config.offload_param.nvme_path = "/proc/sys/x";  // not even root may write there
  zero::MemoryPlan memory;
  memory.states.file = 1;
  CHECK_NOTHROW(free_space(config, memory, 1));  // nothing is to lie there
  memory.parameters.file = 1;
  CHECK_THROWS_WITH_AS(free_space(config, memory, 1),
                       "zero_optimization.offload_param.nvme_path: /proc/sys/x: cannot write to "
                       "/proc/sys: Permission denied",
                       Error);
}

}  // namespace zeroth::engine::free_space_test
