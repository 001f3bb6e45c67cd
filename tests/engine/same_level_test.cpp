#include "engine/same_level.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/ranks.h"

namespace zeroth::engine {

TEST_CASE("ranks of one CPU level go on, of two are refused with both and with the remedy") {
  testing::run_ranks(3, [](std::shared_ptr<comm::Mesh> mesh) {
    for (const CpuLevel level : {CpuLevel::kPlain, CpuLevel::kAvx512Bf16}) {
      CHECK_NOTHROW(require_same_level(level, *mesh));
    }
    const CpuLevel own = mesh->rank() == 1 ? CpuLevel::kAvx2 : CpuLevel::kAvx512Bf16;
    CHECK_THROWS_WITH_AS(require_same_level(own, *mesh),
                         "rank 1 computes by avx2, rank 0 by avx512_bf16: their results would "
                         "differ. Set ZEROTH_CPU=avx2 in the environment of all ranks",
                         Error);
  });
}

}  // namespace zeroth::engine
