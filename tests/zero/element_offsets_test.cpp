#include "zero/parameter_index.h"

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/tensor_slice.h"
#include "tests/engine/split_chain.h"

namespace zeroth::zero::element_offsets_test {
namespace {

comm::MeshLayout grid_of(int data, int tensor) {
  return comm::MeshLayout(comm::MeshShape::data_parallel(data).with(comm::MeshDim::kTp, tensor));
}

// Half of the columns of one matrix.
struct Columns final : engine::SplitBlock {
  explicit Columns(int rank) : SplitBlock("block", {{"weight", {33, 74}, 1}}, rank, 2) {}
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override { return x; }
};

// Of the share's element.
int64_t number_at(const std::vector<optim::OffsetSpan>& parts, int64_t element) {
  return optim::offset_run(parts, element, element + 1).offsets.first;
}

// By the whole parameter's name and the element's place in it: all numbers of a rank's elements.
std::map<std::pair<std::string, int64_t>, int64_t> numbers_of(const UnitPlan& plan) {
  std::map<std::pair<std::string, int64_t>, int64_t> offsets;
  const auto parts = element_offsets(plan);
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const FlatLayout& layout = plan.units[u].layout;
    const Range owned_range = plan.units[u].owned_range();
    for (size_t i = 0; i < layout.slots().size(); ++i) {
      const Slot& slot = layout.slots()[i];
      const Range own = layout.overlap(i, owned_range);
      for (int64_t element = own.begin; element < own.end; ++element) {
        const int64_t place = slice_rows(slot.global.slice, element, 1, 1).front().offset;
        offsets[{slot.global.name, place}] =
            number_at(parts[u], slot.offset + element - owned_range.begin);
      }
    }
  }
  return offsets;
}

}  // namespace

TEST_CASE("an element's number does not depend on which ranks share the model") {
  const auto alone = numbers_of(plan_units(engine::make_split_chain(0, 1), 1));
  std::set<int64_t> different;
  for (const auto& [place, number] : alone) different.insert(number);
  CHECK(different.size() == alone.size());
  for (const int data : {1, 2, 3}) {
    for (const int tensor : {1, 2, 4}) {
      for (const GatherPolicy gather_policy : {GatherPolicy::kNever, GatherPolicy::kBeforeUse}) {
        std::map<std::pair<std::string, int64_t>, int64_t> all;
        for (int rank = 0; rank < data * tensor; ++rank) {
          UnitPlan plan = plan_units(engine::make_split_chain(rank % tensor, tensor),
                                     grid_of(data, tensor), rank);
          for (Unit& unit : plan.units) unit.gather_policy = gather_policy;
          for (const auto& [place, number] : numbers_of(plan)) {
            CHECK(number == alone.at(place));
            all[place] = number;
          }
        }
        CHECK(all.size() == alone.size());
      }
    }
  }
}

TEST_CASE("a rank that has all of every parameter counts its buffers through, as one part each") {
  int64_t before = 0;
  const UnitPlan plan = plan_units(engine::make_split_chain(0, 1), 1);
  const auto parts = element_offsets(plan);
  for (size_t u = 0; u < plan.units.size(); ++u) {
    REQUIRE(parts[u].size() == 1);
    CHECK(parts[u][0].begin == 0);
    CHECK(parts[u][0].offsets.first == before);
    CHECK(parts[u][0].offsets.gap == 0);
    before += plan.units[u].layout.numel();
  }
}

TEST_CASE("columns of a matrix are one part, also where a share begins within a row") {
  for (const int shard_index : {0, 1}) {
    UnitPlan plan = plan_units({std::make_shared<Columns>(1)}, grid_of(2, 2), 2 * shard_index + 1);
    plan.units[0].gather_policy = GatherPolicy::kBeforeUse;
    const auto parts = element_offsets(plan);
    REQUIRE(parts[0].size() == 1);
    const optim::kernel::ElementOffsets& offsets = parts[0][0].offsets;
    CHECK(offsets.length == 37);
    CHECK(offsets.gap == 37);
    CHECK(offsets.left == (shard_index == 0 ? 37 : 37 - 640 % 37));
    CHECK(offsets.first == (shard_index == 0 ? 37 : 640 / 37 * 74 + 37 + 640 % 37));
  }
}

}  // namespace zeroth::zero::element_offsets_test
