#include "base/cpu.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace zeroth {
namespace {

constexpr CpuLevel kLevels[] = {CpuLevel::kPlain, CpuLevel::kAvx2, CpuLevel::kAvx512,
                                CpuLevel::kAvx512Bf16, CpuLevel::kAvx512Fp16};

std::string text_of(const CpuProducts& products) {
  return fmt::format("{} {} {}", name_of(products.fp32), name_of(products.bf16),
                     name_of(products.fp16));
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
     {CpuLevel::kPlain, true, false},
     "libtorch tiles tiles"},
    {"Intel Haswell",
     {"GenuineIntel", 0x7ffafbff, 0x000037ab, 0, 0, 0x7},
     {CpuLevel::kAvx2, true, false},
     "libtorch tiles tiles"},
    {"Intel Alder Lake",
     {"GenuineIntel", 0x7ffafbff, 0x239ca7eb, 0xfc184410, 0x00400810, 0x207},
     {CpuLevel::kAvx2, true, false},
     "libtorch tiles tiles"},
    {"Intel Skylake-SP",
     {"GenuineIntel", 0x7ffefbff, 0xd39ffffb, 0x9c000400, 0, 0x2ff},
     {CpuLevel::kAvx512, true, false},
     "libtorch tiles tiles"},
    {"Skylake-SP under a kernel that saves no AVX-512",
     {"GenuineIntel", 0x7ffefbff, 0xd39ffffb, 0x9c000400, 0, 0x7},
     {CpuLevel::kAvx2, true, false},
     "libtorch tiles tiles"},
    {"Intel Cooper Lake",
     {"GenuineIntel", 0x7ffefbff, 0xd39ffffb, 0xbc000400, 0x20, 0x2ff},
     {CpuLevel::kAvx512Bf16, true, false},
     "libtorch tiles tiles"},
    {"Intel Sapphire Rapids",
     {"GenuineIntel", 0x7ffefbff, 0xf3bfbffb, 0xffdd4432, 0x1c30, 0x602e7},
     {CpuLevel::kAvx512Fp16, true, true},
     "libtorch libtorch libtorch"},
    {"Sapphire Rapids under a kernel that saves no AMX tiles",
     {"GenuineIntel", 0x7ffefbff, 0xf3bfbffb, 0xffdd4432, 0x1c30, 0x2e7},
     {CpuLevel::kAvx512Fp16, true, false},
     "libtorch tiles libtorch"},
    {"Sapphire Rapids whose AMX a virtual machine hides",
     {"GenuineIntel", 0xfffa3203, 0xf1bf2ffb, 0xbc814410, 0x1c30, 0x2e7},
     {CpuLevel::kAvx512Fp16, true, false},
     "libtorch tiles libtorch"},
    {"Sapphire Rapids that hides AMX and fp16",
     {"GenuineIntel", 0xfffa3203, 0xf1bf2ffb, 0xbc014410, 0x1c30, 0x2e7},
     {CpuLevel::kAvx512Bf16, true, false},
     "libtorch tiles tiles"},
    {"AMD Zen 3",
     {"AuthenticAMD", 0x7ef8320b, 0x219c97a9, 0x00000010, 0, 0x207},
     {CpuLevel::kAvx2, false, false},
     "onednn tiles tiles"},
    {"AMD Zen 4",
     {"AuthenticAMD", 0x7efa320b, 0xf1bf97a9, 0x10000010, 0x20, 0x2e7},
     {CpuLevel::kAvx512Bf16, false, false},
     "onednn libtorch tiles"},
    {"AMD Zen 5",
     {"AuthenticAMD", 0x7efa320b, 0xf1bf97a9, 0x10000110, 0x30, 0x2e7},
     {CpuLevel::kAvx512Bf16, false, false},
     "onednn libtorch tiles"},
};

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
  const bool held = cpu_level() < processor_level();
  CHECK(cpu_features().has_amx == (!held && named(" amx_bf16") && named(" amx_tile")));
}

TEST_CASE("CPUID of several processors gives their levels and their fastest products") {
  for (const Example& example : kExamples) {
    CAPTURE(std::string(example.name));
    const CpuFeatures features = features_of(example.id);
    CHECK(name_of(features.level) == name_of(example.features.level));
    CHECK(features.is_intel == example.features.is_intel);
    CHECK(features.has_amx == example.features.has_amx);
    CHECK(text_of(fastest_products(features)) == example.products);
  }
}

TEST_CASE("bf16 is multiplied in tiles where a processor of Intel's is held down below AMX") {
  const CpuFeatures rapids{CpuLevel::kAvx512Fp16, /*is_intel=*/true, /*has_amx=*/true};
  CHECK(fastest_products(held_down(rapids, "")).bf16 == CpuProduct::kLibTorch);
  CHECK(fastest_products(held_down(rapids, "avx512_fp16")).bf16 == CpuProduct::kLibTorch);
  const CpuFeatures zen5{CpuLevel::kAvx512Bf16, /*is_intel=*/false, /*has_amx=*/false};
  for (const CpuLevel level : kLevels) {
    const std::string name(name_of(level));
    CAPTURE(name);
    const bool below = level < CpuLevel::kAvx512Fp16;
    const CpuFeatures held = held_down(rapids, name);
    CHECK(held.level == level);
    CHECK(held.has_amx == !below);
    CHECK((fastest_products(held).bf16 == CpuProduct::kTiles) == below);
    CHECK(fastest_products(held).fp32 == CpuProduct::kLibTorch);
    const bool has_bf16 = level >= CpuLevel::kAvx512Bf16;
    CHECK((fastest_products(held_down(zen5, name)).bf16 == CpuProduct::kLibTorch) == has_bf16);
  }
  // A Cooper Lake and a Sapphire Rapids that is held down to its level compute alike.
  const CpuFeatures cooper{CpuLevel::kAvx512Bf16, /*is_intel=*/true, /*has_amx=*/false};
  CHECK(fastest_products(held_down(rapids, "avx512_bf16")) == fastest_products(cooper));
}

#if defined(__x86_64__)

TEST_CASE("a forced product is used for every dtype but in scalar loops of 16 bits") {
  const CpuFeatures zen4{CpuLevel::kAvx512Bf16, /*is_intel=*/false, /*has_amx=*/false};
  const CpuProducts fastest = fastest_products(zen4);
  const auto forced = [&](const CpuFeatures& features, const char* product) {
    return text_of(forced_products(fastest, features, product));
  };
  CHECK(forced(zen4, "") == text_of(fastest));
  CHECK(forced(zen4, "libtorch") == "libtorch libtorch tiles");
  CHECK(forced(zen4, "onednn") == "onednn libtorch tiles");
  CHECK(forced(zen4, "tiles") == "tiles tiles tiles");
  CHECK(forced({CpuLevel::kAvx2, true, false}, "onednn") == "onednn tiles tiles");
  CHECK(forced({CpuLevel::kAvx512Fp16, true, false}, "onednn") == "onednn libtorch libtorch");
  for (const char* wrong : {"mkl", "Tiles", "1"}) {
    CHECK_THROWS_WITH_AS(forced_products(fastest, zen4, wrong),
                         (std::string("environment variable ZEROTH_PRODUCT=") + wrong +
                          " is none of libtorch, onednn, tiles")
                             .c_str(),
                         Error);
  }
}

TEST_CASE("products are forced until the end of a scope") {
  const CpuProducts before = cpu_products();
  {
    const ForcedProducts tiles("tiles");
    CHECK(text_of(cpu_products()) == "tiles tiles tiles");
    {
      const ForcedProducts inner("onednn");
      CHECK(cpu_products().fp32 == CpuProduct::kOneDnn);
    }
    CHECK(cpu_products().fp32 == CpuProduct::kTiles);
  }
  CHECK(cpu_products() == before);
}

#endif

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
