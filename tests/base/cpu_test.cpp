#include "base/machine/cpu.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace zeroth::cpu_test {
namespace {

constexpr CpuIsa kLevels[] = {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512,
                              CpuIsa::kAvx512Bf16, CpuIsa::kAvx512Fp16};

std::string to_text(const MatmulBackends& products) {
  return fmt::format("{} {} {}", to_string(products.fp32), to_string(products.bf16),
                     to_string(products.fp16));
}

struct Example {
  const char* name;
  CpuId id;
  CpuFeatures features;
  const char* products;  // of fp32, bf16 and fp16
};

// Registers as these processors have them; XCR0 is the kernel's.
const Example kExamples[] = {
    {"Intel Nehalem",
     {"GenuineIntel", 0x009ce3bd},
     {CpuIsa::kBaseline, true, false},
     "libtorch tiles tiles"},
    {"Intel Haswell",
     {"GenuineIntel", 0x7ffafbff, 0x000037ab, 0, 0, 0x7},
     {CpuIsa::kAvx2, true, false},
     "libtorch tiles tiles"},
    {"Intel Alder Lake",
     {"GenuineIntel", 0x7ffafbff, 0x239ca7eb, 0xfc184410, 0x00400810, 0x207},
     {CpuIsa::kAvx2, true, false},
     "libtorch tiles tiles"},
    {"Intel Skylake-SP",
     {"GenuineIntel", 0x7ffefbff, 0xd39ffffb, 0x9c000400, 0, 0x2ff},
     {CpuIsa::kAvx512, true, false},
     "libtorch tiles tiles"},
    {"Skylake-SP under a kernel that saves no AVX-512",
     {"GenuineIntel", 0x7ffefbff, 0xd39ffffb, 0x9c000400, 0, 0x7},
     {CpuIsa::kAvx2, true, false},
     "libtorch tiles tiles"},
    {"Intel Cooper Lake",
     {"GenuineIntel", 0x7ffefbff, 0xd39ffffb, 0xbc000400, 0x20, 0x2ff},
     {CpuIsa::kAvx512Bf16, true, false},
     "libtorch tiles tiles"},
    {"Intel Sapphire Rapids",
     {"GenuineIntel", 0x7ffefbff, 0xf3bfbffb, 0xffdd4432, 0x1c30, 0x602e7},
     {CpuIsa::kAvx512Fp16, true, true},
     "libtorch libtorch libtorch"},
    {"Sapphire Rapids under a kernel that saves no AMX tiles",
     {"GenuineIntel", 0x7ffefbff, 0xf3bfbffb, 0xffdd4432, 0x1c30, 0x2e7},
     {CpuIsa::kAvx512Fp16, true, false},
     "libtorch tiles libtorch"},
    {"Sapphire Rapids whose AMX a virtual machine hides",
     {"GenuineIntel", 0xfffa3203, 0xf1bf2ffb, 0xbc814410, 0x1c30, 0x2e7},
     {CpuIsa::kAvx512Fp16, true, false},
     "libtorch tiles libtorch"},
    {"Sapphire Rapids that hides AMX and fp16",
     {"GenuineIntel", 0xfffa3203, 0xf1bf2ffb, 0xbc014410, 0x1c30, 0x2e7},
     {CpuIsa::kAvx512Bf16, true, false},
     "libtorch tiles tiles"},
    {"AMD Zen 3",
     {"AuthenticAMD", 0x7ef8320b, 0x219c97a9, 0x00000010, 0, 0x207},
     {CpuIsa::kAvx2, false, false},
     "onednn tiles tiles"},
    {"AMD Zen 4",
     {"AuthenticAMD", 0x7efa320b, 0xf1bf97a9, 0x10000010, 0x20, 0x2e7},
     {CpuIsa::kAvx512Bf16, false, false},
     "onednn libtorch tiles"},
    {"AMD Zen 5",
     {"AuthenticAMD", 0x7efa320b, 0xf1bf97a9, 0x10000110, 0x30, 0x2e7},
     {CpuIsa::kAvx512Bf16, false, false},
     "onednn libtorch tiles"},
};

}  // namespace

TEST_CASE("the processor's maker and level are those that the kernel names") {
  std::stringstream text;
  text << std::ifstream("/proc/cpuinfo").rdbuf();
  const std::string info = text.str();
  const auto named = [&](const char* flag) { return info.find(flag) != std::string::npos; };
  CHECK(cpu_is_intel() == named("GenuineIntel"));
  CHECK((detected_cpu_isa() >= CpuIsa::kAvx2) == named(" avx2"));
  CHECK((detected_cpu_isa() >= CpuIsa::kAvx512) == named(" avx512bw"));
  CHECK((detected_cpu_isa() >= CpuIsa::kAvx512Bf16) == named(" avx512_bf16"));
  CHECK((detected_cpu_isa() >= CpuIsa::kAvx512Fp16) == named(" avx512_fp16"));
  const bool held = cpu_isa() < detected_cpu_isa();
  CHECK(cpu_features().has_amx == (!held && named(" amx_bf16") && named(" amx_tile")));
}

TEST_CASE("CPUID of several processors gives their levels and their fastest products") {
  for (const Example& example : kExamples) {
    CAPTURE(std::string(example.name));
    const CpuFeatures features = detect_features(example.id);
    CHECK(to_string(features.isa) == to_string(example.features.isa));
    CHECK(features.is_intel == example.features.is_intel);
    CHECK(features.has_amx == example.features.has_amx);
    CHECK(to_text(fastest_matmul_backends(features)) == example.products);
  }
}

TEST_CASE("bf16 is multiplied in tiles where a processor of Intel's is held down below AMX") {
  const CpuFeatures rapids{CpuIsa::kAvx512Fp16, /*is_intel=*/true, /*has_amx=*/true};
  CHECK(fastest_matmul_backends(limit_cpu(rapids, "")).bf16 == MatmulBackend::kLibTorch);
  CHECK(fastest_matmul_backends(limit_cpu(rapids, "avx512_fp16")).bf16 == MatmulBackend::kLibTorch);
  const CpuFeatures zen5{CpuIsa::kAvx512Bf16, /*is_intel=*/false, /*has_amx=*/false};
  for (const CpuIsa level : kLevels) {
    const std::string name(to_string(level));
    CAPTURE(name);
    const bool below = level < CpuIsa::kAvx512Fp16;
    const CpuFeatures held = limit_cpu(rapids, name);
    CHECK(held.isa == level);
    CHECK(held.has_amx == !below);
    CHECK((fastest_matmul_backends(held).bf16 == MatmulBackend::kTiles) == below);
    CHECK(fastest_matmul_backends(held).fp32 == MatmulBackend::kLibTorch);
    const bool has_bf16 = level >= CpuIsa::kAvx512Bf16;
    CHECK((fastest_matmul_backends(limit_cpu(zen5, name)).bf16 == MatmulBackend::kLibTorch) ==
          has_bf16);
  }
  // A Cooper Lake and a Sapphire Rapids that is held down to its level compute alike.
  const CpuFeatures cooper{CpuIsa::kAvx512Bf16, /*is_intel=*/true, /*has_amx=*/false};
  CHECK(fastest_matmul_backends(limit_cpu(rapids, "avx512_bf16")) ==
        fastest_matmul_backends(cooper));
}

#if defined(__x86_64__)

TEST_CASE("a forced product is used for every dtype but in scalar loops of 16 bits") {
  const CpuFeatures zen4{CpuIsa::kAvx512Bf16, /*is_intel=*/false, /*has_amx=*/false};
  const MatmulBackends fastest = fastest_matmul_backends(zen4);
  const auto forced = [&](const CpuFeatures& features, const char* product) {
    return to_text(forced_matmul_backends(fastest, features, product));
  };
  CHECK(forced(zen4, "") == to_text(fastest));
  CHECK(forced(zen4, "libtorch") == "libtorch libtorch tiles");
  CHECK(forced(zen4, "onednn") == "onednn libtorch tiles");
  CHECK(forced(zen4, "tiles") == "tiles tiles tiles");
  CHECK(forced({CpuIsa::kAvx2, true, false}, "onednn") == "onednn tiles tiles");
  CHECK(forced({CpuIsa::kAvx512Fp16, true, false}, "onednn") == "onednn libtorch libtorch");
  for (const char* wrong : {"mkl", "Tiles", "1"}) {
    CHECK_THROWS_WITH_AS(forced_matmul_backends(fastest, zen4, wrong),
                         (std::string("environment variable ZEROTH_PRODUCT=") + wrong +
                          " is invalid: expected one of libtorch, onednn, tiles")
                             .c_str(),
                         Error);
  }
}

TEST_CASE("products are forced until the end of a scope") {
  const MatmulBackends before = matmul_backends();
  {
    const MatmulBackendGuard tiles("tiles");
    CHECK(to_text(matmul_backends()) == "tiles tiles tiles");
    {
      const MatmulBackendGuard inner("onednn");
      CHECK(matmul_backends().fp32 == MatmulBackend::kOneDnn);
    }
    CHECK(matmul_backends().fp32 == MatmulBackend::kTiles);
  }
  CHECK(matmul_backends() == before);
}

#endif

TEST_CASE("a level holds a processor down and never up") {
  for (const CpuIsa processor : kLevels) {
    CHECK(limit_cpu(processor, "") == processor);
    for (const CpuIsa held : kLevels) {
      CHECK(limit_cpu(processor, std::string(to_string(held))) == std::min(processor, held));
    }
  }
  CHECK(cpu_isa() <= detected_cpu_isa());
}

TEST_CASE("tools/at_cpu_level --below runs a command at the levels below this process's only") {
  for (const CpuIsa level : kLevels) {
    const std::string name(to_string(level));
    CAPTURE(name);
    const std::string held = ZEROTH_SOURCE_DIR "/tools/at_cpu_level --below " + name;
    const std::string looks = "sh -c 'test $ZEROTH_CPU = " + name + "'";
    const int status = std::system((held + " " + looks + " > /dev/null").c_str());
    CHECK(WEXITSTATUS(status) == (level < cpu_isa() ? 0 : 77));
  }
}

TEST_CASE("a level that does not exist is refused with those that do") {
  for (const char* wrong : {"avx", "AVX2", "avx2 ", "2"}) {
    CHECK_THROWS_WITH_AS(
        limit_cpu(CpuIsa::kAvx2, wrong),
        (std::string("environment variable ZEROTH_CPU=") + wrong +
         " is invalid: expected one of plain, avx2, avx512, avx512_bf16, avx512_fp16")
            .c_str(),
        Error);
  }
}

TEST_CASE("the level in words names the processor's where it is held down") {
  CHECK(describe_cpu_isa(CpuIsa::kAvx512, CpuIsa::kAvx512) == "avx512");
  CHECK(describe_cpu_isa(CpuIsa::kAvx2, CpuIsa::kAvx512) ==
        "avx2 (ZEROTH_CPU; the processor has avx512)");
}

}  // namespace zeroth::cpu_test
