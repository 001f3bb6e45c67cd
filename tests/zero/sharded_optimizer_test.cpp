#include "zero/sharded_optimizer.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "engine/train_engine.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::zero {

TEST_CASE("after every step each working weight equals its master rounded") {
  for (const configs::Precision precision :
       {configs::Precision::kBf16, configs::Precision::kFp16}) {
    for (const int stage : {0, 1, 2, 3}) {
      testing::run_ranks(2, [&](std::shared_ptr<comm::Mesh> mesh) {
        configs::Config config;
        config.batch = {.train_batch_size = 12, .micro_batch_size = 6, .accumulation_steps = 1};
        config.precision = precision;
        config.loss_scale.static_scale = 16;
        config.zero.stage = stage;
        config.zero.param_persistence_threshold_elements = 0;
        const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
        testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
        for (int step = 0; step < 3; ++step) {
          CHECK_FALSE(engine->train_batch(loader).skipped);
          for (size_t unit = 0; unit < engine->plan().units.size(); ++unit) {
            const torch::Tensor working = engine->params().shard(unit);
            CHECK(at::equal(working, engine->optimizer().master(unit).to(working.scalar_type())));
          }
        }
      });
    }
  }
}

}  // namespace zeroth::zero
