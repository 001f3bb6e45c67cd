#include "launcher/commands/report.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/fake_system.h"

namespace zeroth::launcher::inventory_test {

TEST_CASE("threads, cores, sockets and instructions are read from cpuinfo") {
  const FakeSystem system;
  std::string text;
  for (int thread = 0; thread < 8; ++thread)
    text += fmt::format(
        "processor\t: {}\nmodel name\t: Some CPU @ 2 GHz\nphysical id\t: {}\ncore id\t\t: {}\n"
        "flags\t\t: fpu sse avx2 amx_bf16 avx512f\n\n",
        thread, thread / 4, thread % 2);
  system.write("proc/cpuinfo", text);
  const CpuInfo processor = probe_cpu(system.root());
  CHECK(processor.model == "Some CPU @ 2 GHz");
  CHECK(processor.threads == 8);
  CHECK(processor.cores == 4);
  CHECK(processor.sockets == 2);
  CHECK(processor.instructions == std::vector<std::string>{"avx2", "avx512f", "amx_bf16"});
}

TEST_CASE("a file system's type is that of the deepest mount around the path") {
  const FakeSystem system;
  const std::string real = std::filesystem::canonical(system.root()).string();
  system.write("proc/self/mounts",
               "a / ext4 rw 0 0\nb " + real + " xfs rw 0 0\nc " + real + "x tmpfs rw 0 0\n");
  const SpaceInfo space = probe_space(system.root(), system.root());
  CHECK(space.type == "xfs");
  CHECK(space.total_bytes > 0);
  CHECK(space.free_bytes <= space.total_bytes);
  CHECK(probe_space("/no/such/folder").total_bytes == 0);
}

TEST_CASE("io_uring, locked memory and the system are described in any case") {
  CHECK_FALSE(probe_io_uring().text.empty());
  CHECK(probe_io_uring().good == (probe_io_uring().text == "available"));
  CHECK_FALSE(probe_locked_memory().text.empty());
  const FakeSystem system;
  system.write("etc/os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 1\"\n");
  CHECK(describe_system(system.root()).starts_with("Some Linux 1, Linux "));
}

}  // namespace zeroth::launcher::inventory_test
