#include "base/machine/host_limits.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/fake_system.h"

namespace zeroth::host_limits_test {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

// A machine with 8 GiB free.
struct Machine : FakeSystem {
  Machine() { write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"); }
};

}  // namespace

TEST_CASE("what this process has taken is in bytes") {
  const ProcessMemory own = process_memory();
  CHECK(own.resident > kMib / 4);
  CHECK(own.peak >= own.resident);
  CHECK(own.peak_virtual > own.peak);
}

TEST_CASE("without control groups the machine's free memory rules") {
  const Machine machine;
  const auto left = free_memory(machine.root());
  REQUIRE(left);
  CHECK(left->bytes == 8192 * kMib);
  CHECK(left->limit == "MemAvailable in /proc/meminfo");
}

TEST_CASE("a group of version 2 allows its limit less what it holds, page cache not counted") {
  const Machine machine;
  machine.make_unified("/job");
  machine.write("sys/fs/cgroup/job/memory.max", std::to_string(1024 * kMib));
  machine.write("sys/fs/cgroup/job/memory.current", std::to_string(600 * kMib));
  machine.write("sys/fs/cgroup/job/memory.stat",
                "anon 1\nactive_file " + std::to_string(100 * kMib) + "\ninactive_file " +
                    std::to_string(200 * kMib) + "\n");
  const auto left = free_memory(machine.root());
  REQUIRE(left);
  CHECK(left->bytes == 724 * kMib);
  CHECK(left->limit ==
        (machine.root() / "sys/fs/cgroup/job/memory.max").string() + ": 1.00 GiB, 300 MiB in use");
}

TEST_CASE("a group further out rules when it has less left") {
  const Machine machine;
  machine.make_unified("/user/job");
  machine.write("sys/fs/cgroup/user/job/memory.max", std::to_string(1024 * kMib));
  machine.write("sys/fs/cgroup/user/job/memory.current", std::to_string(100 * kMib));
  machine.write("sys/fs/cgroup/user/memory.max", std::to_string(2048 * kMib));
  machine.write("sys/fs/cgroup/user/memory.current", std::to_string(2000 * kMib));
  const auto left = free_memory(machine.root());
  REQUIRE(left);
  CHECK(left->bytes == 48 * kMib);
  CHECK(left->limit.find("sys/fs/cgroup/user/memory.max") != std::string::npos);
  machine.write("sys/fs/cgroup/user/memory.current", std::to_string(3000 * kMib));
  CHECK(free_memory(machine.root())->bytes == 0);
}

TEST_CASE("a group of version 1 counts what the groups in it hold") {
  const Machine machine;
  machine.write("proc/self/cgroup", "4:memory:/job\n");
  machine.write("proc/self/mounts", "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n");
  const std::string group = "sys/fs/cgroup/memory/job/";
  machine.write(group + "memory.limit_in_bytes", std::to_string(1024 * kMib));
  machine.write(group + "memory.usage_in_bytes", std::to_string(500 * kMib));
  machine.write(group + "memory.stat", "active_file 1\ntotal_active_file " +
                                           std::to_string(20 * kMib) + "\ntotal_inactive_file " +
                                           std::to_string(80 * kMib) + "\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const auto left = free_memory(machine.root());
  REQUIRE(left);
  CHECK(left->bytes == 624 * kMib);
  CHECK(left->limit.find(group + "memory.limit_in_bytes: 1.00 GiB, 400 MiB") != std::string::npos);
}

TEST_CASE("a group that allows more than the machine has free does not rule") {
  const Machine machine;
  machine.make_unified("/job");
  machine.write("sys/fs/cgroup/job/memory.max", std::to_string(65536 * kMib));
  machine.write("sys/fs/cgroup/job/memory.current", "0");
  CHECK(free_memory(machine.root())->bytes == 8192 * kMib);
}

TEST_CASE("what is free is not known where a system tells nothing; here it is") {
  const FakeSystem silent;
  CHECK_FALSE(free_memory(silent.root()));
  const auto here = free_memory();
  REQUIRE(here);
  CHECK(here->bytes > 0);
}

TEST_CASE("a limit of addresses leaves what this process has not taken of it") {
  CHECK_FALSE(free_address_space());
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{1 << 30, 1 << 30};
    const bool set = ::setrlimit(RLIMIT_AS, &limit) == 0;
    const auto left = free_address_space();
    const bool right = left && left->bytes < (1 << 30) && left->limit == "ulimit -v: 1.00 GiB";
    ::_exit(set && right ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

}  // namespace zeroth::host_limits_test
