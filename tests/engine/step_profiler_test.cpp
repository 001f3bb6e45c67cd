#include "engine/step/step_profiler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::step_profiler_test {
namespace {

configs::Config chain_config(int64_t accumulation, int ranks) {
  configs::Config config;
  config.batch = {12, 12 / accumulation / ranks, accumulation};
  return config;
}

double sum(const StepTimes& times) {
  return times.data + times.forward + times.backward + times.reduce + times.update;
}

// The first block of a chain, late in each forward.
class LateBlock final : public model::Block {
 public:
  explicit LateBlock(std::shared_ptr<model::Block> block)
      : Block(block->label()), block_(register_module("late", std::move(block))) {}
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch& batch) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return block_->forward(x, batch);
  }

 private:
  std::shared_ptr<model::Block> block_;
};

}  // namespace

TEST_CASE("the phases of a step add up to the step") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), chain_config(3, 1), mesh);
    testing::ChainLoader loader({.accumulation = 3});
    for (int step = 0; step < 3; ++step) {
      const auto start = std::chrono::steady_clock::now();
      const StepStats stats = engine->train_batch(loader);
      const double whole =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      for (const double time : {stats.times.data, stats.times.forward, stats.times.backward,
                                stats.times.reduce, stats.times.update}) {
        CHECK(time > 0);
      }
      CHECK(sum(stats.times) <= whole);
      CHECK(sum(stats.times) > 0.5 * whole);
      CHECK(stats.memory.empty());
      CHECK(stats.blocks.empty());
      CHECK(stats.comm.collectives == 0);
    }
  });
}

TEST_CASE("the time of a step that threw belongs to no other") {
  static constexpr std::chrono::milliseconds kLong{100};
  struct SlowAtFirst final : engine::DataLoader {
    model::MicroBatch next() override {
      if (drawn++ == 0) std::this_thread::sleep_for(kLong);
      return chain.next();
    }
    testing::ChainLoader chain{{}};
    int drawn = 0;
  };
  // Blocks whose first call takes long, or throws.
  struct First final : model::Block {
    First(const char* label, bool throws_at_first) : Block(label), throws(throws_at_first) {}
    torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
      if (calls++ > 0) return x * 1;
      if (throws) throw Error("failed");
      std::this_thread::sleep_for(kLong);
      return x * 1;
    }
    bool throws;
    int calls = 0;
  };
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    model::Blocks blocks = testing::make_chain();
    blocks.insert(blocks.begin() + 1, std::make_shared<First>("slow", false));
    blocks.insert(blocks.begin() + 2, std::make_shared<First>("fails", true));
    configs::Config config = chain_config(1, 1);
    config.flops_profiler.enabled = true;
    config.flops_profiler.profile_step = 0;
    const auto engine = testing::make_engine(std::move(blocks), config, mesh);
    SlowAtFirst loader;
    CHECK_THROWS_AS(engine->train_batch(loader), Error);
    const auto start = std::chrono::steady_clock::now();
    const StepStats stats = engine->train_batch(loader);
    const double whole =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    CHECK(sum(stats.times) <= whole);
    double of_blocks = 0;
    for (const BlockTime& block : stats.blocks) of_blocks += block.forward + block.backward;
    CHECK(of_blocks > 0);
    CHECK(of_blocks <= whole);
  });
}

TEST_CASE("with memory_breakdown a step tells what memory each phase left, once each") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config = chain_config(2, 1);
    config.memory_breakdown = true;
    const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
    testing::ChainLoader loader({.accumulation = 2});
    for (int step = 0; step < 2; ++step) {
      const StepStats stats = engine->train_batch(loader);
      std::vector<std::string> names;
      for (const MemoryPoint& point : stats.memory) {
        names.push_back(point.name);
        CHECK(point.use.host > 0);
      }
      CHECK(names == std::vector<std::string>{"before forward", "after forward", "after backward",
                                              "before the update", "after the update"});
    }
  });
}

TEST_CASE("the profiled step, and no other, times every block both ways, recompute too") {
  for (const int64_t every : {0, 2}) {
    testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      configs::Config config = chain_config(2, 1);
      config.flops_profiler.enabled = true;
      config.flops_profiler.profile_step = 1;
      config.recompute.every_nth_block = every;
      const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
      testing::ChainLoader loader({.accumulation = 2});
      CHECK(engine->train_batch(loader).blocks.empty());
      const StepStats stats = engine->train_batch(loader);
      REQUIRE(stats.blocks.size() == 5);
      CHECK(stats.blocks[0].label == "embedding");
      CHECK(stats.blocks[0].parameters == 19 * 6);
      double forward = 0, backward = 0;
      for (const BlockTime& block : stats.blocks) {
        CHECK(block.forward > 0);
        CHECK(block.backward > 0);
        forward += block.forward;
        backward += block.backward;
      }
      CHECK(forward <= stats.times.forward);
      CHECK(backward <= stats.times.backward);
      CHECK(engine->train_batch(loader).blocks.empty());
    });
  }
}

TEST_CASE("updates that wait for the next use of parameters belong to the update, in no block") {
  const TempFolder directory;
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config = chain_config(1, 1);
    config.zero.stage = 3;
    for (auto* const nvme :
         {&config.zero.offload_param.nvme_path, &config.zero.offload_optimizer.nvme_path}) {
      *nvme = directory.path();
    }
    config.zero.offload_param.device = config.zero.offload_optimizer.device =
        configs::OffloadDevice::kNvme;
    config.zero.offload_param.max_in_cpu_elements = 0;
    config.flops_profiler.enabled = true;
    config.flops_profiler.profile_step = 1;
    const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
    testing::ChainLoader loader({.accumulation = 1});
    engine->train_batch(loader);
    const StepStats stats = engine->train_batch(loader);
    CHECK(stats.offload.update > 0);
    REQUIRE(stats.blocks.size() == 5);
    double forward = 0;
    for (const BlockTime& block : stats.blocks) {
      CHECK(block.forward > 0);
      forward += block.forward;
    }
    CHECK(forward <= stats.times.forward);
  });
}

TEST_CASE("a traced step, and no other, tells what each rank did on one time axis") {
  const comm::MeshShape shape = comm::MeshShape().with(comm::MeshDim::kPp, 2);
  testing::run_ranks(
      2,
      [](std::shared_ptr<comm::DeviceMesh> mesh) {
        using Kind = TimelineEvent::Kind;
        configs::Config config = chain_config(4, 1);
        config.pipeline.stages = 2;
        model::Blocks chain = testing::make_chain();
        chain.front() = std::make_shared<LateBlock>(chain.front());
        const auto engine = testing::make_engine(std::move(chain), config, mesh);
        testing::ChainLoader loader({.accumulation = 4});
        CHECK(engine->train_batch(loader).timelines.empty());
        engine->trace_next_step();
        const StepStats stats = engine->train_batch(loader);
        CHECK(engine->train_batch(loader).timelines.empty());
        if (mesh->rank() != 0) {
          CHECK(stats.timelines.empty());
          return;
        }
        REQUIRE(stats.timelines.size() == 2);
        for (int64_t rank = 0; rank < 2; ++rank) {
          const Timeline& timeline = stats.timelines[static_cast<size_t>(rank)];
          std::map<Kind, std::vector<int64_t>> micro_batches;
          double last_end = 0;
          for (const TimelineEvent& event : timeline) {
            CHECK(event.begin == last_end);
            CHECK(event.end >= event.begin);
            CHECK(event.waited >= 0);
            CHECK(event.waited <= event.end - event.begin);
            last_end = event.end;
            if (event.micro_batch < 0) continue;
            CHECK(event.chunk == rank);
            micro_batches[event.kind].push_back(event.micro_batch);
          }
          const std::vector<int64_t> all = {0, 1, 2, 3};
          CHECK(micro_batches[Kind::kForward] == all);
          CHECK(micro_batches[Kind::kBackward] == all);
          REQUIRE(timeline.size() > 2);
          CHECK(timeline[timeline.size() - 2].kind == Kind::kReduce);
          CHECK(timeline.back().kind == Kind::kUpdate);
        }
        // The second rank's first forward waits for the first rank's output, whose own waits for
        // none.
        const auto first_wait = [&](size_t rank) {
          return std::find_if(stats.timelines[rank].begin(), stats.timelines[rank].end(),
                              [](const TimelineEvent& event) { return event.micro_batch == 0; })
              ->waited;
        };
        CHECK(first_wait(0) == 0);
        CHECK(first_wait(1) > 0);
      },
      {.grid = shape});
}

TEST_CASE("what crosses the ranks is counted step by step") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), chain_config(1, 2), mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    engine->train_batch(loader);
    const comm::CommTimes second = engine->train_batch(loader).comm;
    const comm::CommTimes third = engine->train_batch(loader).comm;
    CHECK(second.collectives > 0);
    CHECK(third.collectives == second.collectives);
    CHECK(third.bytes == second.bytes);
    CHECK(third.bytes > 0);
    CHECK(third.in_flight_s > 0);
    CHECK(third.working_s + third.waiting_s > 0);
  });
}

}  // namespace zeroth::engine::step_profiler_test
