#include "engine/machine_room.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/fake_system.h"

namespace zeroth::engine {

TEST_CASE("host memory is looked up, disks only where files will lie") {
  const FakeSystem system;
  system.write("proc/meminfo", "MemAvailable: 1024 kB\n");
  const MachineRoom room = machine_room({}, {}, 3, system.root());
  CHECK(room.ranks == 3);
  REQUIRE(room.host);
  CHECK(room.host->bytes == 1024 * 1024);
  CHECK(room.disks.empty());
}

TEST_CASE("a disk is the one on which the folder of files will be made") {
  const FakeSystem system;
  configs::ZeroConfig config;
  config.offload_optimizer.device = configs::RestingPlace::kNvme;
  config.offload_optimizer.nvme_path = (system.root() / "not/there/yet").string();
  const MachineRoom room = machine_room(config, {}, 1);
  REQUIRE(room.disks.size() == 1);
  CHECK(room.disks.begin()->first == config.offload_optimizer.nvme_path);
  CHECK(room.disks.begin()->second.free > 0);
}

TEST_CASE("folders on one file system are known to be on one, and a folder not used yet is known") {
  const FakeSystem system;
  configs::ZeroConfig config;
  config.offload_optimizer.nvme_path = (system.root() / "a").string();
  config.offload_param.nvme_path = (system.root() / "b").string();
  const MachineRoom room = machine_room(config, {}, 1);
  REQUIRE(room.disks.size() == 2);
  CHECK(room.disks.at(config.offload_optimizer.nvme_path).device ==
        room.disks.at(config.offload_param.nvme_path).device);
  config.offload_param.nvme_path = "/proc";
  CHECK(machine_room(config, {}, 1).disks.count("/proc") == 0);  // has no size
}

TEST_CASE("a folder of files that cannot be made is told by its key before anything else is") {
  configs::ZeroConfig config;
  config.offload_param.nvme_path = "/proc/sys/x";  // not even root may write there
  zero::MemoryPlan memory;
  memory.states.file = 1;
  CHECK_NOTHROW(machine_room(config, memory, 1));  // nothing is to lie there
  memory.parameters.file = 1;
  CHECK_THROWS_WITH_AS(machine_room(config, memory, 1),
                       "zero_optimization.offload_param.nvme_path: /proc/sys/x: cannot write to "
                       "/proc/sys: Permission denied",
                       Error);
}

}  // namespace zeroth::engine
