#include "base/cpu.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

namespace zeroth {

TEST_CASE("the processor's maker and vector units are those that the kernel names") {
  std::stringstream text;
  text << std::ifstream("/proc/cpuinfo").rdbuf();
  const std::string info = text.str();
  CHECK(cpu_is_intel() == (info.find("GenuineIntel") != std::string::npos));
  CHECK(cpu_has_avx2() == (info.find(" avx2") != std::string::npos));
  CHECK(cpu_has_avx512() == (info.find(" avx512bw") != std::string::npos));
  CHECK(cpu_has_avx512_bf16() == (info.find(" avx512_bf16") != std::string::npos));
}

}  // namespace zeroth
