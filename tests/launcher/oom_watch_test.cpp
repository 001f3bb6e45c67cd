#include "launcher/run/oom_watch.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>

#include "tests/support/child_process.h"
#include "tests/support/fake_system.h"

namespace zeroth::launcher::oom_watch_test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a rising counter of the control group names the out-of-memory killer, version 2") {
  const FakeSystem system;
  system.make_unified("/job");
  system.write("sys/fs/cgroup/job/memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 4\n");
  system.write("sys/fs/cgroup/job/memory.max", "67108864\n");
  system.write("proc/meminfo", "MemTotal: 1048576 kB\nMemFree: 1 kB\n");
  OomWatch watch(system.root());
  CHECK(watch.explain_kill() ==
        "sent by a user or process, not by the kernel's out-of-memory killer");
  system.write("sys/fs/cgroup/job/memory.events", "low 0\nhigh 0\nmax 9\noom 5\noom_kill 5\n");
  CHECK(watch.explain_kill() ==
        "out of memory: the kernel's out-of-memory killer ended 1 process of this control group; "
        "the limit of the group is 64.0 MiB; the machine has 1.00 GiB");
  CHECK(contains(watch.explain_kill(), "sent by a user or process, not by"));
}

TEST_CASE("of what else ends a rank only a limit of the address space is told") {
  const FakeSystem system;
  const ChildResult result = in_child([&system] {
    OomWatch watch(system.root());
    if (!watch.explain({true, SIGABRT}).empty()) return 1;
    const rlimit limit{rlim_t{1} << 40, rlim_t{1} << 40};
    ::setrlimit(RLIMIT_AS, &limit);
    for (const ExitStatus exit_status : {ExitStatus{true, SIGABRT}, ExitStatus{false, 127}})
      if (!contains(watch.explain(exit_status), "1.00 TiB of address space: ulimit -v")) return 2;
    for (const ExitStatus exit_status : {ExitStatus{true, SIGTERM}, ExitStatus{false, 1}})
      if (!watch.explain(exit_status).empty()) return 3;
    return contains(watch.explain({true, SIGKILL}), "by a user or process, or out of memory") ? 0
                                                                                              : 4;
  });
  CHECK(result.status == 0);
}

TEST_CASE("version 1 counts in memory.oom_control") {
  const FakeSystem system;
  system.write("proc/self/cgroup", "4:memory:/\n");
  system.write("proc/self/mounts", "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n");
  const std::string file = "sys/fs/cgroup/memory/memory.oom_control";
  system.write(file, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  OomWatch watch(system.root());
  CHECK(watch.read_new_kills() == 0);
  system.write(file, "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  CHECK(watch.read_new_kills() == 2);
  CHECK(watch.read_new_kills() == 0);
}

TEST_CASE("a root group has no counter of its own, so the machine's is taken") {
  const FakeSystem system;
  system.make_unified("/");
  system.write("proc/vmstat", "pgfault 7\noom_kill 10\n");
  OomWatch watch(system.root());
  system.write("proc/vmstat", "pgfault 9\noom_kill 11\n");
  CHECK(contains(watch.explain_kill(), "ended 1 process of this machine meanwhile"));
}

TEST_CASE("where nothing counts, nothing is claimed") {
  const FakeSystem system;
  OomWatch watch(system.root());
  CHECK_FALSE(watch.read_new_kills());
  CHECK(watch.explain_kill() ==
        "by a user or process, or out of memory: unknown here, but dmesg may show it");
}

}  // namespace zeroth::launcher::oom_watch_test
