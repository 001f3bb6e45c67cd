#include "engine/verify/verify_ranks_match.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <string>

#include "base/error.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::verify_ranks_match_test {
namespace {

model::MicroBatch batch_of(int64_t sample, int64_t token) {
  model::MicroBatch batch;
  batch.samples = {sample};
  batch.tokens = torch::full({1, 3}, token, torch::kLong);
  batch.targets = torch::full({1, 3}, 5, torch::kLong);
  return batch;
}

}  // namespace

TEST_CASE("a fingerprint tells samples, tokens and their order apart") {
  CHECK(fingerprint(batch_of(1, 2)) == fingerprint(batch_of(1, 2)));
  CHECK(fingerprint(batch_of(1, 2)) != fingerprint(batch_of(1, 3)));
  CHECK(fingerprint(batch_of(1, 2)) != fingerprint(batch_of(2, 2)));
  model::MicroBatch ends = batch_of(1, 2), begins = batch_of(1, 2);
  ends.tokens[0][2] = 9;
  begins.tokens[0][0] = 9;
  CHECK(fingerprint(ends) != fingerprint(begins));
}

TEST_CASE("ranks that share layers and draw different samples are named, on all ranks") {
  const auto grid = comm::MeshShape().with(comm::MeshDim::kDp, 2).with(comm::MeshDim::kTp, 2);
  testing::run_ranks(
      4,
      [](std::shared_ptr<comm::DeviceMesh> mesh) {
        const int64_t own = mesh->coordinate(comm::MeshDim::kDp);
        CHECK_NOTHROW(verify_batches_match(own, 1, *mesh));
        CHECK_THROWS_WITH_AS(
            verify_batches_match(mesh->rank() == 3 ? 0xbad : 0x600d, 7, *mesh),
            "ranks 2 and 3 share every layer (tensor_parallel.autotp_size 2) but fetched "
            "different samples for step 7: hashes 600d and bad",
            Error);
      },
      {.grid = grid});
}

TEST_CASE("ranks of one CPU level go on, of two are refused with both and with the remedy") {
  testing::run_ranks(3, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    for (const CpuIsa level : {CpuIsa::kBaseline, CpuIsa::kAvx512Bf16}) {
      for (const bool is_intel : {true, false})
        CHECK_NOTHROW(verify_cpu_isa_matches({level, is_intel, {}}, *mesh));
    }
    const CpuIsa own = mesh->rank() == 1 ? CpuIsa::kAvx2 : CpuIsa::kAvx512Bf16;
    CHECK_THROWS_WITH_AS(verify_cpu_isa_matches({.level = own}, *mesh),
                         "rank 1 computes with avx2, rank 0 with avx512_bf16: their results would "
                         "differ. Set ZEROTH_CPU=avx2 in the environment of all ranks",
                         Error);
  });
}

TEST_CASE("ranks on processors of two makers, whose libraries differ, are refused with both") {
  testing::run_ranks(3, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const CpuProfile own{.level = CpuIsa::kAvx2, .is_intel = mesh->rank() == 2};
    CHECK_THROWS_WITH_AS(verify_cpu_isa_matches(own, *mesh),
                         "rank 2 computes on an Intel processor, rank 0 on another vendor's: "
                         "libraries choose their kernels by vendor, and results would differ. Run "
                         "all ranks on processors of one vendor",
                         Error);
  });
}

TEST_CASE("ranks of one level that multiply by different products are refused with both") {
  testing::run_ranks(3, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto found = [&](bool has_amx) {
      const CpuFeatures features{CpuIsa::kAvx512Fp16, /*is_intel=*/true, has_amx};
      return CpuProfile{features.isa, features.is_intel, fastest_matmul_backends(features)};
    };
    CHECK_NOTHROW(verify_cpu_isa_matches(found(/*has_amx=*/false), *mesh));
    CHECK_THROWS_WITH_AS(
        verify_cpu_isa_matches(found(mesh->rank() != 1), *mesh),
        "rank 0 multiplies bf16 with libtorch, rank 1 with tiles: their results would differ. Set "
        "ZEROTH_CPU=avx512_bf16, and no ZEROTH_PRODUCT, in the environment of all ranks",
        Error);
    const MatmulBackend fp32 = mesh->rank() == 2 ? MatmulBackend::kTiles : MatmulBackend::kOneDnn;
    CHECK_THROWS_WITH_AS(
        verify_cpu_isa_matches({.products = {.fp32 = fp32}}, *mesh),
        "rank 0 multiplies fp32 with onednn, rank 2 with tiles: their results would differ. Set "
        "ZEROTH_CPU=avx512_bf16, and no ZEROTH_PRODUCT, in the environment of all ranks",
        Error);
  });
}

}  // namespace zeroth::engine::verify_ranks_match_test
