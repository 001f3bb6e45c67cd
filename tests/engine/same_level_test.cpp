#include "engine/same_level.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/ranks.h"

namespace zeroth::engine {

TEST_CASE("ranks of one CPU level go on, of two are refused with both and with the remedy") {
  testing::run_ranks(3, [](std::shared_ptr<comm::Mesh> mesh) {
    for (const CpuLevel level : {CpuLevel::kPlain, CpuLevel::kAvx512Bf16}) {
      for (const bool is_intel : {true, false})
        CHECK_NOTHROW(require_same_level({level, is_intel, {}}, *mesh));
    }
    const CpuLevel own = mesh->rank() == 1 ? CpuLevel::kAvx2 : CpuLevel::kAvx512Bf16;
    CHECK_THROWS_WITH_AS(require_same_level({.level = own}, *mesh),
                         "rank 1 computes by avx2, rank 0 by avx512_bf16: their results would "
                         "differ. Set ZEROTH_CPU=avx2 in the environment of all ranks",
                         Error);
  });
}

TEST_CASE("ranks on processors of two makers, whose libraries differ, are refused with both") {
  testing::run_ranks(3, [](std::shared_ptr<comm::Mesh> mesh) {
    const Processor own{.level = CpuLevel::kAvx2, .is_intel = mesh->rank() == 2};
    CHECK_THROWS_WITH_AS(require_same_level(own, *mesh),
                         "rank 2 computes on a processor of Intel's, rank 0 on another maker's: "
                         "libraries choose their products by it, and results would differ. Run all "
                         "ranks on processors of one maker",
                         Error);
  });
}

TEST_CASE("ranks of one level that multiply by different products are refused with both") {
  testing::run_ranks(3, [](std::shared_ptr<comm::Mesh> mesh) {
    const auto found = [&](bool has_amx) {
      const CpuFeatures features{CpuLevel::kAvx512Fp16, /*is_intel=*/true, has_amx};
      return Processor{features.level, features.is_intel, fastest_products(features)};
    };
    CHECK_NOTHROW(require_same_level(found(/*has_amx=*/false), *mesh));
    CHECK_THROWS_WITH_AS(
        require_same_level(found(mesh->rank() != 1), *mesh),
        "rank 0 multiplies bf16 by libtorch, rank 1 by tiles: their results would differ. Set "
        "ZEROTH_CPU=avx512_bf16, and no ZEROTH_PRODUCT, in the environment of all ranks",
        Error);
    const CpuProduct fp32 = mesh->rank() == 2 ? CpuProduct::kTiles : CpuProduct::kOneDnn;
    CHECK_THROWS_WITH_AS(require_same_level({.products = {.fp32 = fp32}}, *mesh),
                         "rank 0 multiplies fp32 by onednn, rank 2 by tiles: their results would "
                         "differ. Set ZEROTH_CPU=avx512_bf16, and no ZEROTH_PRODUCT, in the "
                         "environment of all ranks",
                         Error);
  });
}

}  // namespace zeroth::engine
