// Checkpoints that are written while training goes on: the same as those of save_checkpoint(), and
// a run of the same bits.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "comm/cpu_collectives.h"
#include "engine/engine_impl.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::start_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using configs::OffloadDevice;
using configs::Precision;

constexpr testing::ChainOptions kChain = {.hidden = 20, .frozen = true};
constexpr int kSteps = 8;

configs::Config config_of(int stage, int ranks) {
  configs::Config config = chain_config(12 / ranks, 1, ranks);
  config.zero.stage = stage;
  config.zero.sub_group_size_elements = 128;
  config.gradient_clipping = 0.5;
  return config;
}

testing::ChainLoader loader_of(const comm::DeviceMesh& mesh) {
  return testing::ChainLoader({.rank = mesh.rank(), .world_size = mesh.world_size()});
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

enum class Saves { kAtOnce, kBeside, kBesideAndWaits };

// The losses of rank 0 in a run that saves after each second step.
std::vector<double> train(const configs::Config& config, int ranks, Saves saves,
                          const fs::path& to) {
  std::vector<double> losses;
  testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(kChain), config, mesh);
    testing::ChainLoader loader = loader_of(*mesh);
    const CheckpointRequest request{.memory = 512};
    for (int i = 0; i < kSteps; ++i) {
      const StepStats stats = engine->train_batch(loader);
      if (mesh->rank() == 0) losses.push_back(stats.loss);
      if (engine->decision().checkpoint_written && saves == Saves::kBeside)
        engine->finish_checkpoint();
      if (i % 2 == 0) continue;
      if (saves == Saves::kAtOnce) {
        engine->save_checkpoint(to, request);
      } else {
        const auto before = engine->start_checkpoint(to, request);
        const bool first = i == 1;
        if (saves == Saves::kBesideAndWaits) CHECK(before.has_value() == !first);
        if (before) CHECK(before->path == to / ("step-" + std::to_string(stats.step - 2)));
        CHECK(engine->has_pending_checkpoint());
      }
    }
    if (engine->has_pending_checkpoint()) {
      const SavedCheckpoint saved = engine->finish_checkpoint();
      CHECK(saved.path == to / ("step-" + std::to_string(kSteps)));
      CHECK(saved.warnings.empty());
      CHECK(saved.blocked_s > 0);
    }
    CHECK_FALSE(engine->has_pending_checkpoint());
  });
  return losses;
}

void check_same(const configs::Config& config, int ranks) {
  const TempFolder directory;
  const std::vector<double> losses = train(config, ranks, Saves::kAtOnce, directory / "at-once");
  for (const Saves saves : {Saves::kBeside, Saves::kBesideAndWaits}) {
    const fs::path beside = directory / (saves == Saves::kBeside ? "beside" : "waits");
    CHECK(train(config, ranks, saves, beside) == losses);
    for (int step = 2; step <= kSteps; step += 2) {
      for (int rank = 0; rank < ranks; ++rank) {
        const std::string name =
            "step-" + std::to_string(step) + "/zeroth/pieces-0000" + std::to_string(rank);
        const std::string expected = bytes_of(directory / "at-once" / (name + ".safetensors"));
        CHECK(expected.size() > 100);
        CHECK((bytes_of(beside / (name + ".safetensors")) == expected));
      }
    }
  }
}

// Names in a folder that are checkpoints.
int checkpoints_in(const fs::path& directory) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    count += entry.path().filename().string().starts_with("step-");
  }
  return count;
}

// Rank 1's file is in the way by the time when its thread makes it.
CheckpointRequest failing_request() {
  return {.write_files = [](const fs::path& made) {
    write_text(made / "zeroth/pieces-00001.safetensors", "");
  }};
}

}  // namespace

TEST_CASE("a checkpoint beside training is that of the step at which it was begun, byte by byte") {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int ranks : {1, 2}) {
      for (const auto precision : {Precision::kFp32, Precision::kBf16}) {
        CAPTURE(stage);
        CAPTURE(ranks);
        CAPTURE(static_cast<int>(precision));
        configs::Config config = config_of(stage, ranks);
        config.precision = precision;
        check_same(config, ranks);
      }
    }
  }
}

TEST_CASE("... from any resting place, with a norm pass, and over steps that are skipped") {
  const TempFolder directory;
  for (const auto place : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
    configs::Config config = config_of(3, 2);
    config.zero.offload_optimizer.device = place;
    config.zero.offload_optimizer.nvme_path = directory.path().string();
    config.zero.offload_param.device = place;
    config.zero.offload_param.nvme_path = directory.path().string();
    check_same(config, 2);
    config.optimizer.kind = configs::OptimizerConfig::Kind::kLamb;
    check_same(config, 2);
  }
  configs::Config config = config_of(2, 2);
  config.optimizer.kind = configs::OptimizerConfig::Kind::kAdamW8bit;
  config.optimizer.min_8bit_size = 390;
  check_same(config, 2);
  config = config_of(2, 2);
  config.precision = Precision::kFp16;
  config.loss_scale.initial_scale_power = 26;
  check_same(config, 2);
}

TEST_CASE("writing is timed without what training takes beside it") {
  const TempFolder directory;
  using std::chrono::milliseconds;
  for (const auto place : {OffloadDevice::kNone, OffloadDevice::kNvme}) {
    CAPTURE(static_cast<int>(place));
    configs::Config config = config_of(2, 1);
    config.zero.offload_optimizer.device = place;
    config.zero.offload_optimizer.nvme_path = directory.path().string();
    testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
      testing::ChainLoader loader = loader_of(*mesh);
      engine->train_batch(loader);
      const SavedCheckpoint at_once = engine->save_checkpoint(directory.path());
      CHECK(at_once.writing_s == at_once.blocked_s);
      engine->train_batch(loader);
      const auto begin = std::chrono::steady_clock::now();
      engine->start_checkpoint(directory.path());
      std::this_thread::sleep_for(milliseconds(600));  // no update hands over what is in a file
      do {
        engine->train_batch(loader);
      } while (!engine->decision().checkpoint_written);
      std::this_thread::sleep_for(milliseconds(300));  // nobody asks for the end
      const SavedCheckpoint beside = engine->finish_checkpoint();
      const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
      CHECK(beside.writing_s > 0);
      CHECK(beside.writing_s < all.count() - (place == OffloadDevice::kNone ? 0.29 : 0.4));
    });
  }
}

TEST_CASE("a run goes on from a checkpoint that was written beside it") {
  const TempFolder directory;
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), config_of(2, 2), mesh);
    testing::ChainLoader loader = loader_of(*mesh);
    engine->train_batch(loader);
    engine->start_checkpoint(directory.path(), {.client_state = {{"mine", "5"}}});
    const double loss = engine->train_batch(loader).loss;
    engine->train_batch(loader);
    const auto loaded = engine->load_checkpoint(directory.path());  // ends what is under way
    REQUIRE(loaded);
    CHECK_FALSE(engine->has_pending_checkpoint());
    CHECK(loaded->path == directory / "step-1");
    CHECK((loaded->client_state == ClientState{{"mine", "5"}}));
    CHECK(engine->counters().steps == 1);
    testing::ChainLoader again = loader_of(*mesh);
    again.next();
    CHECK(engine->train_batch(again).loss == loss);
  });
}

TEST_CASE("all ranks see in the same step that all is written, also what has failed") {
  const TempFolder directory;
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), config_of(2, 2), mesh);
    testing::ChainLoader loader = loader_of(*mesh);
    engine->train_batch(loader);
    CHECK_FALSE(engine->decision().checkpoint_written);
    for (const bool fails : {false, true}) {
      engine->start_checkpoint(directory.path(), fails ? failing_request() : CheckpointRequest());
      // Nobody's clock counts: it is written some time.
      do {
        engine->train_batch(loader);
      } while (!engine->decision().checkpoint_written);
      if (fails) {
        CHECK_THROWS_WITH_AS(engine->finish_checkpoint(), doctest::Contains("rank 1: "), Error);
      } else {
        engine->finish_checkpoint();
      }
      CHECK_FALSE(engine->has_pending_checkpoint());
      engine->train_batch(loader);
      CHECK_FALSE(engine->decision().checkpoint_written);
    }
  });
  CHECK(checkpoints_in(directory.path()) == 1);
}

TEST_CASE("a disk that fails one rank's thread fails all in the end, and the run goes on") {
  const TempFolder directory;
  for (const bool by_next : {false, true}) {
    const fs::path to = directory / (by_next ? "next" : "finish");
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto engine = testing::make_engine(testing::make_chain(), config_of(2, 2), mesh);
      testing::ChainLoader loader = loader_of(*mesh);
      engine->train_batch(loader);
      engine->start_checkpoint(to, failing_request());
      CHECK(std::isfinite(engine->train_batch(loader).loss));
      if (by_next) {
        CHECK_THROWS_WITH_AS(engine->start_checkpoint(to), doctest::Contains("rank 1: "), Error);
      } else {
        CHECK_THROWS_WITH_AS(engine->finish_checkpoint(), doctest::Contains("rank 1: "), Error);
      }
      CHECK_FALSE(engine->has_pending_checkpoint());
      CHECK(std::isfinite(engine->train_batch(loader).loss));
      engine->start_checkpoint(to);
      engine->train_batch(loader);
      CHECK(engine->finish_checkpoint().path == to / "step-3");
    });
    CHECK(checkpoints_in(to) == 1);
  }
}

TEST_CASE(
    "what fails at once is an Error of start_checkpoint on all ranks, and none is under way") {
  const TempFolder directory;
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), config_of(2, 2), mesh);
    testing::ChainLoader loader = loader_of(*mesh);
    engine->train_batch(loader);
    const CheckpointRequest request{
        .write_files = [](const fs::path&) { throw Error("no tokenizer"); }};
    CHECK_THROWS_WITH_AS(engine->start_checkpoint(directory.path(), request),
                         doctest::Contains("rank 0: no tokenizer"), Error);
    CHECK_FALSE(engine->has_pending_checkpoint());
    CHECK(std::isfinite(engine->train_batch(loader).loss));
  });
  CHECK(checkpoints_in(directory.path()) == 0);
}

TEST_CASE("an engine that goes leaves the checkpoint that is under way: there is none then") {
  const TempFolder directory;
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    for (const int steps : {0, 1}) {
      const auto engine = testing::make_engine(testing::make_chain(kChain), config_of(2, 2), mesh);
      testing::ChainLoader loader = loader_of(*mesh);
      engine->train_batch(loader);
      engine->start_checkpoint(directory.path(), {.memory = 512});
      for (int i = 0; i < steps; ++i) engine->train_batch(loader);
    }
    comm::barrier(*mesh);
    CHECK(checkpoints_in(directory.path()) == 0);
    comm::barrier(*mesh);
    const auto engine = testing::make_engine(testing::make_chain(kChain), config_of(2, 2), mesh);
    engine->save_checkpoint(directory.path());  // clears away what may have been left
  });
  CHECK(checkpoints_in(directory.path()) == 1);
}

}  // namespace zeroth::engine::start_checkpoint_test
