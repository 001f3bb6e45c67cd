#include "engine/same_level.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/ranks.h"

namespace zeroth::engine {

TEST_CASE("ranks of one CPU level go on, of two are refused with both and with the remedy") {
  testing::run_ranks(3, [](std::shared_ptr<comm::Mesh> mesh) {
    for (const CpuLevel level : {CpuLevel::kPlain, CpuLevel::kAvx512Bf16}) {
      for (const bool is_intel : {true, false})
        CHECK_NOTHROW(require_same_level({level, is_intel}, *mesh));
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

}  // namespace zeroth::engine
