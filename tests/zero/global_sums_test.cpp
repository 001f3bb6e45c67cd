#include "zero/sharded_optimizer.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <vector>

#include "tests/support/ranks.h"
#include "zero/unit.h"

namespace zeroth::zero::global_sums_test {
namespace {

using comm::MeshDim;

// Three slots, of which the first and the last are boxes of one parameter.
Unit unit_of(const comm::DeviceMesh& mesh, int copies, GatherPolicy gather_policy) {
  const comm::Group& group = mesh.shard_group(copies);
  Unit unit{.name = "layer",
            .num_replicas = copies,
            .shard_index = group.rank(),
            .layout = FlatLayout(group.size()),
            .params = {},
            .blocks = {0},
            .gather_policy = gather_policy};
  unit.layout.add({"q", {"qkv", {{8, 2}, {0, 0}, {2, 2}}}});
  unit.layout.add("norm", {3});
  unit.layout.add({"k", {"qkv", {{8, 2}, {4, 0}, {2, 2}}}});
  return unit;
}

}  // namespace

TEST_CASE("sums of whole parameters count each element once, however ranks hold them") {
  testing::RankOptions options;
  options.grid = comm::MeshShape::data_parallel(2).with(MeshDim::kTp, 4);
  testing::run_ranks(
      8,
      [](std::shared_ptr<comm::DeviceMesh> mesh) {
        for (const int copies : {1, 2, 4}) {
          for (const auto gather_policy : {GatherPolicy::kNever, GatherPolicy::kAfterUpdate}) {
            CAPTURE(copies);
            const Unit unit = unit_of(*mesh, copies, gather_policy);
            // Every box sums up to 60, 6, 600; a share of a cut one has as many parts as holders.
            const bool cut = gather_policy == GatherPolicy::kAfterUpdate;
            const double parts = cut ? 2 * copies : 1;
            const torch::Tensor own = torch::tensor({60.0, 6.0, 600.0}, torch::kDouble) / parts;
            const torch::Tensor sums = global_sums(unit, own.view({3, 1}), *mesh);
            const double slices = 4.0 / copies;
            CHECK(sums[0].item<double>() == doctest::Approx(660 * slices));
            CHECK(sums[1].item<double>() == doctest::Approx(6 * slices));
            CHECK(sums[2].item<double>() == sums[0].item<double>());
          }
        }
      },
      options);
}

TEST_CASE("what a rank holds alone is summed as it is") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    Unit unit = unit_of(*mesh, 1, GatherPolicy::kNever);
    const torch::Tensor own = torch::tensor({1.0, 2.0, 4.0}, torch::kDouble).view({3, 1});
    const torch::Tensor sums = global_sums(unit, own, *mesh).flatten();
    CHECK(at::equal(sums, torch::tensor({5.0, 2.0, 5.0}, torch::kDouble)));
  });
}

}  // namespace zeroth::zero::global_sums_test
