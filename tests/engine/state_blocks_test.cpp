#include "engine/state/state_blocks.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"
#include "zero/dtype.h"
#include "zero/sharded_optimizer.h"

namespace zeroth::engine::state_blocks_test {
namespace {

// Hands a test what it is given.
class Collected final : public StateSink {
 public:
  void begin(const std::vector<StateSlice>&) override {}
  void write(size_t index, int64_t first, const torch::Tensor& values) override {
    for (int64_t i = 0; i < values.numel(); ++i) {
      CHECK(values_.try_emplace({index, first + i}, values[i].item<double>()).second);
    }
  }
  std::map<std::pair<size_t, int64_t>, double> values_;
};

}  // namespace

TEST_CASE("blocks make up all pieces, each element once, and none crosses a tile or a limit") {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int64_t max_bytes : {256, 1 << 20}) {
      CAPTURE(stage);
      CAPTURE(max_bytes);
      testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        configs::Config config = chain_config(6, 1, 2);
        config.zero.stage = stage;
        config.zero.sub_group_size_elements = 192;
        const auto engine =
            testing::make_engine(testing::make_chain({.frozen = true}), config, mesh);
        const ShardedState held = engine->impl().sharded_state();
        const std::vector<StateSlice> pieces = slices_to_save(held);
        std::vector<std::vector<int>> times;
        for (const StateSlice& piece : pieces) times.emplace_back(piece.size(), 0);
        size_t unit = 0;
        for (const StateBlock& block : blocks_to_save(held, max_bytes)) {
          CHECK(block.unit >= unit);
          unit = block.unit;
          CHECK(block.bytes() <= max_bytes);
          CHECK(block.tile.begin <= block.range.begin);
          CHECK(block.range.end <= block.tile.end);
          for (const StateBlock::SliceRange& part : block.parts) {
            const StateSlice& piece = pieces.at(part.piece);
            CHECK((piece.dtype == block.dtype));
            CHECK(piece.state == held.optimizer.states().arrays(block.unit).at(block.array).name);
            CHECK(part.begin + part.size <= block.range.size());
            for (int64_t i = 0; i < part.size; ++i) {
              ++times[part.piece].at(static_cast<size_t>(part.first + i));
            }
          }
        }
        for (const auto& each : times) CHECK(each == std::vector<int>(each.size(), 1));
      });
    }
  }
}

TEST_CASE("a block's values are the same in place and as its tile is lent") {
  for (const int stage : {0, 2, 3}) {
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      configs::Config config = chain_config(6, 1, 2);
      config.zero.stage = stage;
      config.zero.sub_group_size_elements = 192;
      const auto engine = testing::make_engine(testing::make_chain({.frozen = true}), config, mesh);
      testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
      engine->train_batch(loader);
      const ShardedState held = engine->impl().sharded_state();
      Collected there, shared;
      TileReader tiles(held);
      for (const StateBlock& block : blocks_to_save(held, 256)) {
        REQUIRE(in_place(held, block).defined());
        block.write(in_place(held, block), there);
        block.write(
            tiles.read(block).narrow(0, block.range.begin - block.tile.begin, block.range.size()),
            shared);
      }
      CHECK(there.values_.size() > 0);
      CHECK(there.values_ == shared.values_);
    });
  }
}

TEST_CASE("what rests in files is not read in place") {
  const TempFolder directory;
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config = chain_config(12, 1, 1);
    config.zero.stage = 3;
    config.zero.offload_optimizer.device = configs::OffloadDevice::kNvme;
    config.zero.offload_optimizer.nvme_path = directory.path().string();
    const auto engine = testing::make_engine(testing::make_chain({.frozen = true}), config, mesh);
    const ShardedState held = engine->impl().sharded_state();
    for (const StateBlock& block : blocks_to_save(held)) {
      const bool weights = block.array == 0;  // in fp32 they are the master
      CHECK(in_place(held, block).defined() == weights);
    }
  });
}

}  // namespace zeroth::engine::state_blocks_test
