// What a run on the GPU holds, written while it trains.
#include "engine/state/snapshot.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <chrono>
#include <thread>

#include "engine/engine_impl.h"
#include "tests/engine/chain_config.h"
#include "tests/engine/saved_run.h"
#include "tests/support/chain.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::snapshot_test {
namespace {

using configs::OffloadDevice;
using Step = configs::OffloadOptimizerConfig::UpdateDevice;

constexpr testing::ChainOptions kChain = {.hidden = 64, .layers = 4, .frozen = true};

struct Case {
  OffloadDevice optimizer = OffloadDevice::kNone;
  Step step = Step::kCpu;
  OffloadDevice parameters = OffloadDevice::kNone;
  configs::Precision precision = configs::Precision::kFp32;
  int64_t memory = 16 << 10;  // of copies: much less than is saved
};

class SlowSink final : public StateSink {
 public:
  explicit SlowSink(SavedRun& to) : sink_(to) {}
  void begin(const std::vector<StateSlice>& pieces) override { sink_.begin(pieces); }
  void write(size_t index, int64_t first, const torch::Tensor& values) override {
    REQUIRE(values.is_cpu());
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    sink_.write(index, first, values);
  }

 private:
  SavedRun::Sink sink_;
};

// The losses of five steps and what is held after them; beside them, what was held after two.
struct Trained {
  std::vector<double> losses;
  SavedRun end, expected, seen;
};

void train(const Case& c, bool saves, Trained& trained) {
  const TempFolder directory;
  configs::Config config = chain_config(12, 1, 1);
  config.precision = c.precision;
  config.zero.stage = c.parameters == OffloadDevice::kNone ? 2 : 3;
  config.zero.sub_group_size_elements = 4096;
  config.zero.offload_optimizer.device = c.optimizer;
  config.zero.offload_optimizer.step = c.step;
  config.zero.offload_optimizer.nvme_path = directory.path();
  config.zero.offload_param.device = c.parameters;
  config.zero.offload_param.nvme_path = directory.path();
  config.zero.offload_param.max_in_cpu_elements = 0;
  const torch::Device gpu(torch::kCUDA, 0);
  const auto mesh = std::make_shared<comm::DeviceMesh>(gpu, comm::make_solo_group());
  const auto engine = testing::make_engine(testing::make_chain(kChain), config, mesh);
  testing::ChainLoader loader({.accumulation = 1});
  const auto step = [&] { trained.losses.push_back(engine->train_batch(loader).loss); };
  step();
  step();
  const ShardedState held = engine->impl().sharded_state();
  if (saves) {
    SavedRun::Sink expected(trained.expected);
    engine->save_states(expected);
    SnapshotMemory memory(gpu, c.memory);
    SlowSink sink(trained.seen);
    Snapshot snapshot(
        held, sink, [] {}, memory);
    engine->impl().optimizer().set_observer(&snapshot);
    step();
    snapshot.copy_remaining();
    step();
    apply_pending_updates(held);
    CHECK_FALSE(snapshot.wait());
    engine->impl().optimizer().set_observer(nullptr);
  } else {
    step();
    step();
  }
  step();
  SavedRun::Sink end(trained.end);
  engine->save_states(end);
}

}  // namespace

TEST_CASE(
    "a snapshot of a run on the GPU is what it held, and the run has the bits of one without") {
  constexpr auto kDevice = OffloadDevice::kNone;
  constexpr auto kCpu = OffloadDevice::kCpu;
  constexpr auto kNvme = OffloadDevice::kNvme;
  for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
    for (const Case& c :
         {Case{.precision = precision}, Case{.precision = precision, .memory = 1 << 24},
          Case{kCpu, Step::kCpu, kDevice, precision}, Case{kCpu, Step::kGpu, kDevice, precision},
          Case{kNvme, Step::kCpu, kDevice, precision}, Case{kNvme, Step::kGpu, kNvme, precision},
          Case{kCpu, Step::kGpu, kCpu, precision}}) {
      CAPTURE(static_cast<int>(precision));
      CAPTURE(static_cast<int>(c.optimizer));
      CAPTURE(static_cast<int>(c.step));
      CAPTURE(static_cast<int>(c.parameters));
      Trained without, with;
      train(c, false, without);
      train(c, true, with);
      CHECK(with.losses == without.losses);
      CHECK(with.end == without.end);
      with.seen.check_complete();
      CHECK(with.seen == with.expected);
    }
  }
}

}  // namespace zeroth::engine::snapshot_test
