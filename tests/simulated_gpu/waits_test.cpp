// How often the host waits for the device.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <thread>

#include "comm/device_mesh.h"
#include "comm/groups/group.h"
#include "comm/groups/shared_memory_group.h"
#include "device/gpu.h"
#include "engine/engine.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_source.h"
#include "tests/engine/chain_config.h"
#include "tests/simulated_gpu/of_library.h"
#include "tests/simulated_gpu/tokens.h"

namespace zeroth::simulated::waits_test {
namespace {

int64_t waits() {
  static const auto count = of_library<int64_t()>("zeroth_simulated_waits");
  return count();
}

// Ranks that share the GPU, as threads.
void share_gpu(int count, const std::function<void(std::shared_ptr<comm::DeviceMesh>)>& fn) {
  const auto ring = comm::RingSize::for_ranks(count);
  const auto segment = comm::SharedSegment::create(comm::shared_memory_group_bytes(count, ring));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < count; ++rank) {
    ranks.emplace_back([&, rank] {
      device::load_gpu().select(0);
      auto group = comm::make_shared_memory_group(
          segment, std::make_shared<comm::RankTable>(segment, rank, count), rank, count,
          {.timeout = std::chrono::seconds(60), .ring = ring});
      fn(std::make_shared<comm::DeviceMesh>(torch::Device(torch::kCUDA, 0),
                                            comm::make_cpu_staged_group(std::move(group))));
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace

TEST_CASE("in a step of one rank the host waits for the device once, at its end") {
  const std::string directory = ZEROTH_SOURCE_DIR "/tests/model/fixtures/llama";
  const model::ModelSpec spec = model::read_model_spec(directory);
  for (const bool masked : {false, true}) {
    const configs::Config config = engine::chain_config(4, masked ? 3 : 1, 1);
    const auto mesh =
        std::make_shared<comm::DeviceMesh>(torch::Device(torch::kCUDA, 0), comm::make_solo_group());
    const auto engine =
        engine::initialize(model::build_blocks(spec), config, mesh,
                           {.weights = model::open_weights(directory, spec, config.seed)});
    Tokens data(masked);
    for (int step = 0; step < 3; ++step) {
      const int64_t before = waits();
      engine->train_batch(data);
      if (step > 0) CHECK(waits() - before == 1);  // the first makes angles and such
    }
  }
}

// What they exchange crosses the host; nothing else waits but the end of the step.
TEST_CASE("ranks that share a GPU wait for it once a collective, and once at the end of a step") {
  constexpr int kRanks = 2;
  const std::string directory = ZEROTH_SOURCE_DIR "/tests/model/fixtures/llama";
  const model::ModelSpec spec = model::read_model_spec(directory);
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    std::barrier together(kRanks);
    std::atomic<int64_t> collectives = 0;
    share_gpu(kRanks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      configs::Config config = engine::chain_config(4, 1, kRanks);
      config.zero.stage = stage;
      config.zero.ignore_unused_parameters = false;
      const auto engine =
          engine::initialize(model::build_blocks(spec), config, mesh,
                             {.weights = model::open_weights(directory, spec, config.seed)});
      Tokens data(/*masked=*/true);
      for (int step = 0; step < 3; ++step) {
        together.arrive_and_wait();
        const int64_t before = waits();
        collectives = 0;
        together.arrive_and_wait();
        collectives += engine->train_batch(data).comm.collectives;
        together.arrive_and_wait();
        if (step > 0 && mesh->rank() == 0) CHECK(waits() - before == collectives + kRanks);
      }
    });
  }
}

}  // namespace zeroth::simulated::waits_test
