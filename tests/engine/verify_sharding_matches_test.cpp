#include "engine/verify/verify_ranks_match.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/engine/split_chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::verify_sharding_matches_test {
namespace {

using comm::MeshDim;

// A block that is shared as its own rank says, right or wrong.
class SharedBlock final : public model::Block {
 public:
  explicit SharedBlock(std::string label) : Block(std::move(label)) {}
  SharedBlock& add(const std::string& name, const std::vector<int64_t>& extent,
                   const model::Split& split) {
    register_parameter(name, at::zeros(extent));
    splits_[name] = split;
    return *this;
  }
  SharedBlock& add_buffer(const std::string& name, const torch::Tensor& value,
                          const std::optional<model::Split>& split = {}) {
    register_buffer(name, value);
    if (split) splits_[name] = *split;
    return *this;
  }
  std::optional<model::Splits> splits() const override { return splits_; }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override { return x; }

 private:
  model::Splits splits_;
};

using Fill = std::function<void(SharedBlock& block, int rank)>;

// What 2 x `ranks` ranks are told of a block that each fills by its place on axis tensor.
std::string reported(int ranks, const Fill& fill) {
  testing::RankOptions options;
  options.grid = comm::MeshShape::data_parallel(2).with(MeshDim::kTp, ranks);
  std::vector<std::string> reported(static_cast<size_t>(2 * ranks));
  testing::run_ranks(
      2 * ranks,
      [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const auto block = std::make_shared<SharedBlock>("layer");
        fill(*block, mesh->coordinate(MeshDim::kTp));
        try {
          verify_sharding_matches({block}, *mesh);
        } catch (const Error& error) {
          reported[static_cast<size_t>(mesh->rank())] = error.what();
        }
      },
      options);
  for (const std::string& other : reported) CHECK(other == reported.front());
  return reported.front();
}

}  // namespace

TEST_CASE("ranks that hold each parameter together are let through, however they share it") {
  for (const int ranks : {1, 2, 4}) {
    testing::RankOptions options;
    options.grid = comm::MeshShape::data_parallel(2).with(MeshDim::kTp, ranks);
    testing::run_ranks(
        2 * ranks,
        [](std::shared_ptr<comm::DeviceMesh> mesh) {
          CHECK_NOTHROW(verify_sharding_matches(make_split_chain(*mesh), *mesh));
        },
        options);
  }
  // Fewer rows than ranks: one holds nothing.
  CHECK(reported(4, [](SharedBlock& block, int rank) {
          block.add("weight", {rank < 3 ? 1 : 0, 2}, {"weight", {3, 2}, {rank, 0}, 1, 2});
        }) == "");
}

TEST_CASE("elements that no rank holds are told with what each rank has") {
  CHECK(reported(2,
                 [](SharedBlock& block, int rank) {
                   block.add("weight", {2, 8}, {"weight", {5, 8}, {2 * rank, 0}});
                 }) ==
        "layer.weight: the ranks that share it hold 32 of its 40 elements: rank 0 holds [2, 8] "
        "at offset [0, 0], rank 1 holds [2, 8] at offset [2, 0] (Block::splits)");
}

TEST_CASE("elements that two ranks hold are told, but not copies that both call so") {
  const auto overlapping = [](int copies, int64_t begin) {
    return reported(2, [=](SharedBlock& block, int rank) {
      block.add("weight", {4, 8}, {"weight", {6, 8}, {begin * rank, 0}, copies});
    });
  };
  CHECK(overlapping(1, 2) ==
        "layer.weight: rank 0 holds [4, 8] at offset [0, 0], and rank 1 holds [4, 8] at offset "
        "[2, 0]: some elements are in both (Block::splits)");
  CHECK(overlapping(1, 0) ==
        "layer.weight: rank 0 holds [4, 8] at offset [0, 0], declared with 1 replicas, but 2 "
        "ranks hold it (Block::splits)");
  CHECK(reported(2, [](SharedBlock& block, int) {
          block.add("weight", {4, 8}, {"weight", {4, 8}, {0, 0}, 2});
        }) == "");
}

TEST_CASE("boxes of which one is larger are told unless the largest one is given") {
  const auto uneven = [](int64_t max_numel) {
    return reported(2, [=](SharedBlock& block, int rank) {
      block.add("a", {rank == 0 ? 3 : 2, 64}, {"a", {5, 64}, {3 * rank, 0}, 1, max_numel});
      block.add("b", {1, 64}, {"b", {2, 64}, {rank, 0}});
    });
  };
  CHECK(uneven(0) ==
        "ranks 0 and 1 share every layer, but \"layer.b\" begins at element 192 of unit \"layer\" "
        "on the first, and at 128 on the second: where slices differ in size, each rank must set "
        "Split::max_numel to the largest (Block::splits)");
  CHECK(uneven(192) == "");
}

TEST_CASE("ranks that list different parameters, or the same of different shapes, are told") {
  CHECK(reported(2,
                 [](SharedBlock& block, int rank) {
                   const std::string name = rank == 0 ? "left" : "right";
                   block.add(name, {2, 8}, {name, {4, 8}, {2 * rank, 0}});
                 }) ==
        "ranks 0 and 1 share every layer, but where one has \"layer.left\", the other has "
        "\"layer.right\" (Block::splits)");
  CHECK(reported(2,
                 [](SharedBlock& block, int rank) {
                   block.add("weight", {2, 8}, {"weight", {4 + rank, 8}, {2 * rank, 0}});
                 }) ==
        "ranks 0 and 1 share every layer, but one lists layer.weight [4,8], the other "
        "\"layer.weight\" [5,8] (Block::splits)");
}

TEST_CASE("a rank whose own blocks cannot be planned is named on all ranks") {
  CHECK(reported(2,
                 [](SharedBlock& block, int rank) {
                   block.add("weight", {2, 8}, {"weight", {4, 8}, {3 * rank, 0}});
                 }) ==
        "rank 1: layer.weight of shape [2, 8] at offset [3, 0] is not a slice of [4, 8] "
        "(Block::splits)");
}

TEST_CASE("a buffer of which each rank has its own part is a box, and any other the same on all") {
  const auto with = [](const std::function<void(SharedBlock&, int)>& add) {
    return reported(2, [=](SharedBlock& block, int rank) {
      block.add("weight", {2, 8}, {"weight", {4, 8}, {2 * rank, 0}});
      add(block, rank);
    });
  };
  CHECK(with([](SharedBlock& block, int) { block.add_buffer("mask", at::ones({3})); }) == "");
  CHECK(with([](SharedBlock& block, int rank) { block.add_buffer("mask", at::full({3}, rank)); }) ==
        "ranks 0 and 1 share every layer, but buffer layer.mask has different values: one of "
        "which each rank has its own slice must be among the splits (Block::splits)");
  CHECK(
      with([](SharedBlock& block, int rank) { block.add_buffer("mask", at::ones({3 + rank})); }) ==
      "ranks 0 and 1 share every layer, but one lists layer.mask [3], the other \"layer.mask\" "
      "[4] (Block::splits)");
  CHECK(with([](SharedBlock& block, int rank) {
          if (rank == 0) block.add_buffer("mask", at::ones({3}));
        }) == "ranks 0 and 1 share every layer, but list 1 and 0 buffers (Block::splits)");
  CHECK(with([](SharedBlock& block, int rank) {
          block.add_buffer("mask", at::full({3}, rank), {{"mask", {6}, {3 * rank}}});
        }) == "");
  CHECK(with([](SharedBlock& block, int rank) {
          block.add_buffer("mask", at::full({3}, rank), {{"mask", {7}, {3 * rank}}});
        }) ==
        "layer.mask: the ranks that share it hold 6 of its 7 elements: rank 0 holds [3] at "
        "offset [0], rank 1 holds [3] at offset [3] (Block::splits)");
  CHECK(with([](SharedBlock& block, int rank) {
          block.add_buffer("mask", at::full({3}, rank), {{"mask", {6}, {4 * rank}}});
        }) ==
        "rank 1: layer.mask of shape [3] at offset [4] is not a slice of [6] (Block::splits)");
}

}  // namespace zeroth::engine::verify_sharding_matches_test
