#include "engine/state/snapshot.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <set>
#include <thread>

#include "base/error.h"
#include "tests/engine/chain_config.h"
#include "tests/engine/saved_run.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::snapshot_test {
namespace {

using configs::OffloadDevice;

// How the thread gets on beside training.
enum class Pace {
  kFree,
  kSlow,  // updates come to most blocks first
  kHeld   // until the end: they come to all
};

struct Case {
  configs::Config config;
  int ranks = 1;
  Pace pace = Pace::kFree;
  int64_t memory = int64_t{1} << 20;  // of copies
  testing::ChainOptions chain = {.hidden = 20, .frozen = true};
};

// Writes into a run at a pace.
class PacedSink final : public StateSink {
 public:
  PacedSink(SavedRun& to, Pace pace) : sink_(to), pace_(pace) {}
  void begin(const std::vector<StateSlice>& pieces) override {
    if (pace_ == Pace::kHeld) opened_.get_future().wait();
    sink_.begin(pieces);
  }
  void write(size_t index, int64_t first, const torch::Tensor& values) override {
    if (writes_left-- == 0) throw Error("the disk says no");
    if (pace_ == Pace::kSlow) std::this_thread::sleep_for(std::chrono::microseconds(100));
    sink_.write(index, first, values);
  }
  void open() { opened_.set_value(); }

  int writes_left = -1;  // so many succeed, the next fails; negative: all succeed

 private:
  SavedRun::Sink sink_;
  Pace pace_;
  std::promise<void> opened_;
};

ShardedState held_by(Engine& engine) {
  return engine.impl().sharded_state();
}

testing::ChainLoader loader_of(const comm::DeviceMesh& mesh) {
  return testing::ChainLoader({.rank = mesh.rank(), .world_size = mesh.world_size()});
}

constexpr int kSteps = 6;

// A run without saves: its losses on rank 0, and its end.
std::vector<double> train(const Case& c, SavedRun& end) {
  std::vector<double> losses;
  testing::run_ranks(c.ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(c.chain), c.config, mesh);
    testing::ChainLoader loader = loader_of(*mesh);
    for (int step = 0; step < kSteps; ++step) {
      const double loss = engine->train_batch(loader).loss;
      if (mesh->rank() == 0) losses.push_back(loss);
    }
    SavedRun::Sink sink(end);
    engine->save_states(sink);
  });
  return losses;
}

// What was held at the edge of a step, and what a snapshot made of it.
struct Saved {
  SavedRun expected, seen;
};

// Trains for a step or two; those blocks that are held wait for copies of all.
void train_beside(const Case& c, Engine& engine, testing::ChainLoader& loader, int steps,
                  Saved& saved, std::vector<double>& losses) {
  SavedRun::Sink expected(saved.expected);
  engine.save_states(expected);
  SnapshotMemory memory(torch::kCPU, c.memory);
  PacedSink sink(saved.seen, c.pace);
  bool finished = false;
  Snapshot snapshot(
      held_by(engine), sink, [&] { finished = true; }, memory);
  engine.impl().optimizer().set_observer(&snapshot);
  for (int step = 0; step < steps; ++step) {
    losses.push_back(engine.train_batch(loader).loss);
    snapshot.copy_remaining();
  }
  if (c.pace == Pace::kHeld) {
    CHECK_FALSE(snapshot.ended());
    sink.open();
  }
  apply_pending_updates(held_by(engine));
  CHECK_FALSE(snapshot.wait());
  CHECK(snapshot.ended());
  CHECK(finished);
  engine.impl().optimizer().set_observer(nullptr);
}

void check_case(const Case& c) {
  SavedRun end, end_beside;
  const std::vector<double> losses = train(c, end);
  std::vector<double> beside;
  std::vector<Saved> saved(3);
  testing::run_ranks(c.ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(c.chain), c.config, mesh);
    testing::ChainLoader loader = loader_of(*mesh);
    std::vector<double> own;
    own.push_back(engine->train_batch(loader).loss);
    train_beside(c, *engine, loader, 1, saved[0], own);
    train_beside(c, *engine, loader, 2, saved[1], own);
    own.push_back(engine->train_batch(loader).loss);
    train_beside(c, *engine, loader, 1, saved[2], own);
    SavedRun::Sink sink(end_beside);
    engine->save_states(sink);
    if (mesh->rank() == 0) beside = own;
  });
  CHECK(beside == losses);
  CHECK(end_beside == end);
  for (const Saved& each : saved) {
    each.seen.check_complete();
    CHECK(each.seen == each.expected);
  }
}

void check_paces(Case c) {
  const int64_t whole = c.memory;
  for (const Pace pace : {Pace::kFree, Pace::kSlow, Pace::kHeld}) {
    CAPTURE(static_cast<int>(pace));
    c.pace = pace;
    c.memory = pace == Pace::kSlow ? 1024 : whole;
    check_case(c);
  }
}

configs::Config config_of(int stage, int ranks) {
  configs::Config config = chain_config(12 / ranks, 1, ranks);
  config.zero.stage = stage;
  config.zero.sub_group_size_elements = 128;
  config.zero.param_persistence_threshold_elements = 0;
  config.gradient_clipping = 0.5;
  return config;
}

}  // namespace

TEST_CASE(
    "a snapshot is what was held when it was made, and training beside it has the same bits") {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int ranks : {1, 2}) {
      for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
        CAPTURE(stage);
        CAPTURE(ranks);
        CAPTURE(static_cast<int>(precision));
        Case c{.config = config_of(stage, ranks), .ranks = ranks};
        c.config.precision = precision;
        check_paces(c);
      }
    }
  }
}

TEST_CASE("... from any resting place") {
  const TempFolder directory;
  for (const int stage : {0, 2, 3}) {
    for (const auto place : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
      for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
        CAPTURE(stage);
        CAPTURE(static_cast<int>(place));
        CAPTURE(static_cast<int>(precision));
        Case c{.config = config_of(stage, 2), .ranks = 2};
        c.config.precision = precision;
        c.config.zero.offload_optimizer.device = place;
        c.config.zero.offload_optimizer.nvme_path = directory.path().string();
        if (stage == 3) {
          c.config.zero.offload_param.device = place;
          c.config.zero.offload_param.nvme_path = directory.path().string();
        }
        check_paces(c);
      }
    }
  }
}

TEST_CASE("... with a norm pass, whose first pass changes states already") {
  const TempFolder directory;
  for (const auto place : {OffloadDevice::kNone, OffloadDevice::kNvme}) {
    Case c{.config = config_of(2, 2), .ranks = 2};
    c.config.optimizer.kind = configs::OptimizerConfig::Kind::kLamb;
    c.config.zero.offload_optimizer.device = place;
    c.config.zero.offload_optimizer.nvme_path = directory.path().string();
    check_paces(c);
  }
}

TEST_CASE("... over steps that a loss scale skips, to which no update comes") {
  Case c{.config = config_of(2, 2), .ranks = 2};
  c.config.precision = configs::Precision::kFp16;
  c.config.loss_scale.initial_scale_power = 26;
  c.config.loss_scale.hysteresis = 2;
  c.pace = Pace::kSlow;
  check_paces(c);
}

TEST_CASE("a writer that fails on one rank says so at the end, and training goes on") {
  for (const int64_t memory : {1024, 1 << 20}) {
    Case c{.config = config_of(1, 2), .ranks = 2, .memory = memory};
    SavedRun end, end_beside, lost;
    const std::vector<double> losses = train(c, end);
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto engine = testing::make_engine(testing::make_chain(c.chain), c.config, mesh);
      testing::ChainLoader loader = loader_of(*mesh);
      SnapshotMemory room(torch::kCPU, c.memory);
      PacedSink sink(lost, Pace::kSlow);
      if (mesh->rank() == 1) sink.writes_left = 2;
      bool finished = false;
      Snapshot snapshot(
          held_by(*engine), sink, [&] { finished = true; }, room);
      engine->impl().optimizer().set_observer(&snapshot);
      for (int step = 0; step < kSteps; ++step) {
        CHECK(engine->train_batch(loader).loss == losses[static_cast<size_t>(step)]);
      }
      const auto failure = snapshot.wait();
      CHECK(finished == (mesh->rank() == 0));
      CHECK(failure.value_or("") == (mesh->rank() == 0 ? "" : "the disk says no"));
      engine->impl().optimizer().set_observer(nullptr);
      SavedRun::Sink after(end_beside);
      engine->save_states(after);
    });
    CHECK(end_beside == end);
  }
}

TEST_CASE("a snapshot that is left ends, and its memory serves the next one") {
  const Case c{.config = config_of(0, 1)};
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(c.chain), c.config, mesh);
    testing::ChainLoader loader = loader_of(*mesh);
    SnapshotMemory memory(torch::kCPU, 4096);
    engine->train_batch(loader);  // a state of zeros looks the same before it is written
    for (int i = 0; i < 5; ++i) {
      SavedRun expected, seen;
      SavedRun::Sink held(expected);
      engine->save_states(held);
      PacedSink sink(seen, Pace::kSlow);
      bool finished = false;
      {
        Snapshot snapshot(
            held_by(*engine), sink, [&] { finished = true; }, memory);
        engine->impl().optimizer().set_observer(&snapshot);
        if (i > 1) engine->train_batch(loader);
        if (i == 4) CHECK_FALSE(snapshot.wait());
        engine->impl().optimizer().set_observer(nullptr);
      }
      if (i == 4) CHECK(finished);
      CHECK((seen == expected) == finished);
    }
  });
}

TEST_CASE("buffers of copies are cut from slabs of 256 MiB, which are used again") {
  constexpr int64_t kMiB = int64_t{1} << 20;
  SnapshotMemory memory(torch::kCPU, 600 * kMiB);
  std::set<const void*> slabs;
  std::vector<torch::Tensor> buffers;
  const auto fill = [&](int64_t bytes) {
    while (memory.has_room(bytes)) {
      buffers.push_back(memory.acquire(bytes));
      slabs.insert(buffers.back().storage().data());
    }
  };
  const auto give_all = [&](size_t step) {
    for (size_t first = 0; first < step; ++first) {
      for (size_t i = first; i < buffers.size(); i += step) memory.release(std::move(buffers[i]));
    }
    buffers.clear();
  };
  fill(4 * kMiB);
  CHECK(buffers.size() == 64 + 64 + 88 / 4);
  CHECK(slabs.size() == 3);
  give_all(3);
  fill(100'000);
  CHECK(buffers.size() == 2683 + 2683 + 922);  // each takes 100'032
  give_all(1);
  fill(3 * kMiB + 1);  // ranges grow together again
  CHECK(buffers.size() == 85 + 85 + 29);
  CHECK(slabs.size() == 3);
}

TEST_CASE("buffers that are taken share no byte, whatever their sizes and order") {
  SnapshotMemory memory(torch::kCPU, 10'000);
  std::vector<torch::Tensor> taken;
  const auto values = [](size_t i) { return static_cast<int64_t>(i % 251); };
  uint64_t draw = 1;
  for (int i = 0; i < 3000; ++i) {
    draw = draw * 6364136223846793005u + 1442695040888963407u;
    const auto bytes = static_cast<int64_t>(1 + (draw >> 33) % 2500);
    REQUIRE((memory.has_room(bytes) || !taken.empty()));
    if (memory.has_room(bytes) && (taken.empty() || (draw >> 60) < 11)) {
      taken.push_back(memory.acquire(bytes));
      REQUIRE(taken.back().numel() == bytes);
      continue;
    }
    for (size_t k = 0; k < taken.size(); ++k) taken[k].fill_(values(k));
    for (size_t k = 0; k < taken.size(); ++k) CHECK(taken[k].eq(values(k)).all().item<bool>());
    const size_t gone = (draw >> 40) % taken.size();
    memory.release(std::move(taken[gone]));
    taken.erase(taken.begin() + static_cast<int64_t>(gone));
  }
}

TEST_CASE("copies have a quarter of what is saved, small saves all of it") {
  constexpr int64_t kMiB = int64_t{1} << 20;
  CHECK(snapshot_memory(kMiB) == kMiB);
  CHECK(snapshot_memory(100 * kMiB) == 64 * kMiB);
  CHECK(snapshot_memory(1000 * kMiB) == 250 * kMiB);
}

}  // namespace zeroth::engine::snapshot_test
