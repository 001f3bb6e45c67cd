#include "base/cpu.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace zeroth {
namespace {

constexpr CpuLevel kLevels[] = {CpuLevel::kPlain, CpuLevel::kAvx2, CpuLevel::kAvx512,
                                CpuLevel::kAvx512Bf16, CpuLevel::kAvx512Fp16};

}  // namespace

TEST_CASE("the processor's maker and level are those that the kernel names") {
  std::stringstream text;
  text << std::ifstream("/proc/cpuinfo").rdbuf();
  const std::string info = text.str();
  const auto named = [&](const char* flag) { return info.find(flag) != std::string::npos; };
  CHECK(cpu_is_intel() == named("GenuineIntel"));
  CHECK((processor_level() >= CpuLevel::kAvx2) == named(" avx2"));
  CHECK((processor_level() >= CpuLevel::kAvx512) == named(" avx512bw"));
  CHECK((processor_level() >= CpuLevel::kAvx512Bf16) == named(" avx512_bf16"));
  CHECK((processor_level() >= CpuLevel::kAvx512Fp16) == named(" avx512_fp16"));
}

TEST_CASE("a level holds a processor down and never up") {
  for (const CpuLevel processor : kLevels) {
    CHECK(held_down(processor, "") == processor);
    for (const CpuLevel held : kLevels) {
      CHECK(held_down(processor, std::string(name_of(held))) == std::min(processor, held));
    }
  }
  CHECK(cpu_level() <= processor_level());
}

TEST_CASE("tools/at_cpu_level --below runs a command at the levels below this process's only") {
  for (const CpuLevel level : kLevels) {
    const std::string name(name_of(level));
    CAPTURE(name);
    const std::string held = ZEROTH_SOURCE_DIR "/tools/at_cpu_level --below " + name;
    const std::string looks = "sh -c 'test $ZEROTH_CPU = " + name + "'";
    const int status = std::system((held + " " + looks + " > /dev/null").c_str());
    CHECK(WEXITSTATUS(status) == (level < cpu_level() ? 0 : 77));
  }
}

TEST_CASE("a level that does not exist is refused with those that do") {
  for (const char* wrong : {"avx", "AVX2", "avx2 ", "2"}) {
    CHECK_THROWS_WITH_AS(held_down(CpuLevel::kAvx2, wrong),
                         (std::string("environment variable ZEROTH_CPU=") + wrong +
                          " is none of plain, avx2, avx512, avx512_bf16, avx512_fp16")
                             .c_str(),
                         Error);
  }
}

TEST_CASE("the level in words names the processor's where it is held down") {
  CHECK(cpu_level_text(CpuLevel::kAvx512, CpuLevel::kAvx512) == "avx512");
  CHECK(cpu_level_text(CpuLevel::kAvx2, CpuLevel::kAvx512) ==
        "avx2 (ZEROTH_CPU; the processor has avx512)");
}

}  // namespace zeroth
