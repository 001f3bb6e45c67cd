// Breadth-first steps: a block is used by all micro-batches in a row.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "engine/engine_impl.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::breadth_first_test {
namespace {

using Schedule = configs::PipelineConfig::Schedule;

constexpr int64_t kAccumulation = 4;

struct Trained {
  std::vector<double> losses;
  int64_t bytes_read = 0;  // of parameters, in all steps
};

// Eight steps at stage 3 with parameters in files.
Trained train(Schedule schedule) {
  const TempFolder directory;
  Trained result;
  testing::run_ranks(1, [&](const std::shared_ptr<comm::DeviceMesh>& mesh) {
    configs::Config config = chain_config(2, kAccumulation, 1);
    config.zero.stage = 3;
    config.zero.prefetch_bucket_elements = config.zero.max_live_elements = 0;
    config.zero.offload_param = {.device = configs::OffloadDevice::kNvme,
                                 .nvme_path = directory.path().string(),
                                 .buffer_count = 3,
                                 .max_in_cpu_elements = 0};
    config.pipeline.schedule = schedule;
    const auto engine = testing::make_engine(testing::make_chain({.layers = 6}), config, mesh);
    testing::ChainLoader loader(
        {.global_batch = config.batch.train_batch_size, .accumulation = kAccumulation});
    for (int step = 0; step < 8; ++step) {
      const StepStats stats = engine->train_batch(loader);
      result.losses.push_back(stats.loss);
      result.bytes_read += stats.offload.traffic.bytes_read;
    }
  });
  return result;
}

}  // namespace

TEST_CASE("breadth first, a block is read from its file once per pass of the step") {
  const Trained deep = train(Schedule::k1F1B);
  const Trained broad = train(Schedule::kBreadthFirst);
  CHECK(broad.losses == deep.losses);
  REQUIRE(broad.bytes_read > 0);
  MESSAGE(deep.bytes_read << " bytes read with 1F1B, " << broad.bytes_read << " breadth first");
  // About a quarter. How many of the few blocks the buffers keep from pass to pass depends on when
  // reads end.
  CHECK(deep.bytes_read > kAccumulation / 2 * broad.bytes_read);
}

}  // namespace zeroth::engine::breadth_first_test
