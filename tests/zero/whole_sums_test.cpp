#include "zero/whole_sums.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <vector>

#include "tests/support/ranks.h"

namespace zeroth::zero {
namespace {

using comm::Axis;

// Three slots, of which the first and the last are boxes of one parameter.
Unit unit_of(const comm::Mesh& mesh, int copies, Retention retention) {
  const comm::Group& holders = mesh.sharing(copies);
  Unit unit{.name = "layer",
            .copies = copies,
            .holder = holders.rank(),
            .layout = FlatLayout(holders.size()),
            .params = {},
            .blocks = {0},
            .retention = retention};
  unit.layout.add("q", {2, 2}, Whole{"qkv", {8, 2}, {0, 0}, 0});
  unit.layout.add("norm", {3});
  unit.layout.add("k", {2, 2}, Whole{"qkv", {8, 2}, {4, 0}, 0});
  return unit;
}

}  // namespace

TEST_CASE("sums of whole parameters count each element once, however ranks hold them") {
  testing::RankOptions options;
  options.grid = comm::GridShape::data(2).with(Axis::kTensor, 4);
  testing::run_ranks(
      8,
      [](std::shared_ptr<comm::Mesh> mesh) {
        for (const int copies : {1, 2, 4}) {
          for (const auto retention : {Retention::kWhole, Retention::kRefresh}) {
            CAPTURE(copies);
            const Unit unit = unit_of(*mesh, copies, retention);
            // Every box sums up to 60, 6, 600; a share of a cut one has as many parts as holders.
            const bool cut = retention == Retention::kRefresh;
            const double parts = cut ? 2 * copies : 1;
            const torch::Tensor own = torch::tensor({60.0, 6.0, 600.0}, torch::kDouble) / parts;
            const torch::Tensor sums = sums_of_wholes(unit, own.view({3, 1}), *mesh);
            const double boxes = 4.0 / copies;
            CHECK(sums[0].item<double>() == doctest::Approx(660 * boxes));
            CHECK(sums[1].item<double>() == doctest::Approx(6 * boxes));
            CHECK(sums[2].item<double>() == sums[0].item<double>());
          }
        }
      },
      options);
}

TEST_CASE("what a rank holds alone is summed as it is") {
  testing::run_ranks(1, [](std::shared_ptr<comm::Mesh> mesh) {
    Unit unit = unit_of(*mesh, 1, Retention::kWhole);
    const torch::Tensor own = torch::tensor({1.0, 2.0, 4.0}, torch::kDouble).view({3, 1});
    const torch::Tensor sums = sums_of_wholes(unit, own, *mesh).flatten();
    CHECK(at::equal(sums, torch::tensor({5.0, 2.0, 5.0}, torch::kDouble)));
  });
}

}  // namespace zeroth::zero
