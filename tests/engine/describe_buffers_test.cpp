#include "engine/verify/verify_ranks_match.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "tests/engine/split_chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::describe_buffers_test {
namespace {

using Json = nlohmann::json;

// Has a buffer that all have, halves of one, and one of which two neighbours have the same.
class BufferBlock final : public SplitBlock {
 public:
  BufferBlock(const std::string& label, int rank, int ranks, int64_t value)
      : SplitBlock(label, {{"weight", {8, 8}, 0}}, rank, ranks), rank_(rank), ranks_(ranks) {
    for (const char* name : {"all", "part", "pair"}) {
      register_buffer(name, at::full({2}, value, at::kLong));
    }
  }
  std::optional<model::Splits> splits() const override {
    model::Splits splits = SplitBlock::splits().value();
    splits["part"] = {"parts", {2 * ranks_}, {2 * rank_}};
    splits["pair"] = {"pairs", {ranks_}, {rank_ / 2 * 2}, 2};
    return splits;
  }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override { return x; }

 private:
  int rank_, ranks_;
};

}  // namespace

TEST_CASE("a buffer is a box of a whole one, or whole with what it holds") {
  const Json reported = describe_buffers({std::make_shared<BufferBlock>("layer", 3, 4, 7)}, 4);
  const Json other = describe_buffers({std::make_shared<BufferBlock>("layer", 3, 4, 8)}, 4);
  REQUIRE(reported.size() == 3);
  CHECK(reported[0].at("name") == "layer.all");
  CHECK(reported[0].at("boxes") == Json::parse("[[[0], [2], 4]]"));
  CHECK(reported[0].at("crc32c") != other[0].at("crc32c"));
  CHECK(reported[1] ==
        Json::parse(R"({"name": "layer.parts", "shape": [8], "boxes": [[[6], [2], 1]]})"));
  CHECK(reported[2] ==
        Json::parse(R"({"name": "layer.pairs", "shape": [4], "boxes": [[[2], [2], 2]]})"));
  CHECK(other[1] == reported[1]);
}

TEST_CASE("buffers start from the values of the first rank that holds the same") {
  const auto grid = comm::MeshShape::data_parallel(2).with(comm::MeshDim::kTp, 4);
  testing::run_ranks(
      8,
      [](std::shared_ptr<comm::DeviceMesh> mesh) {
        const int rank = mesh->rank() % 4;
        model::Blocks blocks;
        for (const char* label : {"first", "last"}) {
          blocks.push_back(std::make_shared<BufferBlock>(label, rank, 4, mesh->rank()));
          blocks.back()->named_buffers()["all"].fill_(mesh->rank() / 4);
        }
        configs::Config config;
        config.tensor_parallel.size = 4;
        const auto engine = initialize(blocks, config, mesh);
        for (const auto& block : blocks) {
          const auto value = [&](const char* name) {
            return block->named_buffers()[name][1].item<int64_t>();
          };
          CHECK(value("all") == 0);
          CHECK(value("part") == rank);
          CHECK(value("pair") == rank / 2 * 2);
        }
      },
      {.grid = grid});
}

}  // namespace zeroth::engine::describe_buffers_test
