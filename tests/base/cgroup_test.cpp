#include "base/machine/cgroup.h"

#include <doctest/doctest.h>

#include "tests/support/fake_system.h"

namespace zeroth::cgroup_test {

TEST_CASE("the memory group and its limit are found in version 1") {
  const FakeSystem system;
  system.write("proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job/run\n0::/\n");
  system.write("proc/self/mounts",
               "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
               "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n"
               "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n");
  system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  system.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1048576\n");
  system.write("sys/fs/cgroup/memory/job/run/memory.limit_in_bytes", "2097152\n");
  const auto group = find_cgroup("memory", system.root());
  REQUIRE(group);
  CHECK(group->directory == system.root() / "sys/fs/cgroup/memory/job/run");
  CHECK_FALSE(group->unified);
  CHECK(memory_limit(system.root()) == 1048576);
}

TEST_CASE("the memory group, its limit and the time limit are found in version 2") {
  const FakeSystem system;
  system.make_unified("/user/job");
  system.write("sys/fs/cgroup/user/memory.max", "4194304\n");
  system.write("sys/fs/cgroup/user/job/memory.max", "max\n");
  system.write("sys/fs/cgroup/user/job/cpu.max", "150000 100000\n");
  CHECK(find_cgroup("memory", system.root())->unified);
  CHECK(memory_limit(system.root()) == 4194304);
  CHECK(cpu_quota(system.root()) == doctest::Approx(1.5));
  system.write("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
  CHECK_FALSE(cpu_quota(system.root()));
}

TEST_CASE("the time limit of version 1 is a quota over a period, -1 is none") {
  const FakeSystem system;
  system.write("proc/self/cgroup", "5:cpu,cpuacct:/\n");
  system.write("proc/self/mounts", "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n");
  system.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  system.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  CHECK_FALSE(cpu_quota(system.root()));
  system.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  CHECK(cpu_quota(system.root()) == doctest::Approx(2.5));
}

TEST_CASE("a container that sees its own group as the whole hierarchy finds it there") {
  const FakeSystem system;
  system.make_unified("/docker/0123");
  std::filesystem::remove_all(system.root() / "sys/fs/cgroup/docker");
  system.write("sys/fs/cgroup/memory.max", "8388608\n");
  CHECK(find_cgroup("memory", system.root())->directory == system.root() / "sys/fs/cgroup");
  CHECK(memory_limit(system.root()) == 8388608);
}

TEST_CASE("a machine without control groups has no limits") {
  const FakeSystem system;
  CHECK_FALSE(find_cgroup("memory", system.root()));
  CHECK_FALSE(memory_limit(system.root()));
  CHECK_FALSE(cpu_quota(system.root()));
}

TEST_CASE("counters are found by their whole name, with or without a unit") {
  const FakeSystem system;
  system.write("events", "oom 3\noom_kill 2\nMemFree: 12 kB\nodd\noom_group_kill 1\n");
  CHECK(read_counter(system.root() / "events", "oom_kill") == 2);
  CHECK(read_counter(system.root() / "events", "MemFree:") == 12);
  CHECK(read_counter(system.root() / "events", "oom_group_kill") == 1);
  CHECK_FALSE(read_counter(system.root() / "events", "odd"));
  CHECK_FALSE(read_counter(system.root() / "nowhere", "oom"));
}

}  // namespace zeroth::cgroup_test
