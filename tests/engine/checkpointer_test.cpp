#include "engine/state/checkpointer.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/engine/chain_config.h"
#include "tests/engine/split_chain.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/read_state.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::checkpointer_test {
namespace {

namespace fs = std::filesystem;

configs::Config config_of(int stage, int ranks) {
  configs::Config config = chain_config(12 / ranks, 1, ranks);
  config.zero.stage = stage;
  config.gradient_clipping = 0.5;
  return config;
}

struct Run {
  int first = 0;  // step, from 0
  int steps = 0;
  fs::path from = {};
  fs::path to = {};
  testing::ChainOptions chain = {.frozen = true};
};

// The losses of rank 0.
std::vector<double> train(const configs::Config& config, int ranks, const Run& run) {
  std::vector<double> losses;
  testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(run.chain), config, mesh);
    if (!run.from.empty()) {
      const auto loaded = engine->load_checkpoint(run.from);
      REQUIRE(loaded);
      CHECK((loaded->client_state == ClientState{{"mine", std::string("5")}}));
    }
    testing::ChainLoader loader(
        {.global_batch = config.batch.train_batch_size, .rank = mesh->rank(), .world_size = ranks});
    for (int i = 0; i < run.first; ++i) loader.next();
    for (int i = 0; i < run.steps; ++i) {
      const StepStats stats = engine->train_batch(loader);
      if (mesh->rank() == 0) losses.push_back(stats.loss);
      if (run.to.empty()) continue;
      const SavedCheckpoint saved =
          engine->save_checkpoint(run.to, {.client_state = {{"mine", std::string("5")}}});
      CHECK(saved.path == run.to / ("step-" + std::to_string(stats.step)));
      CHECK(saved.warnings.empty());
    }
  });
  return losses;
}

// The same for ranks of a grid and the chain that they share; without steps it saves what it took.
std::vector<double> train_shared(const comm::MeshShape& shape, int stage, const Run& run) {
  std::vector<double> losses;
  const configs::Config config = config_of(stage, shape[comm::MeshDim::kDp]);
  run_split_chain(shape, config, [&](Engine& engine, comm::DeviceMesh& mesh) {
    if (!run.from.empty()) REQUIRE(engine.load_checkpoint(run.from));
    testing::ChainLoader loader({.rank = 0, .world_size = 1});
    for (int i = 0; i < run.first; ++i) loader.next();
    for (int i = 0; i < run.steps; ++i) {
      const double loss = engine.train_batch(loader).loss;
      if (mesh.rank() == 0) losses.push_back(loss);
    }
    if (!run.to.empty()) engine.save_checkpoint(run.to);
  });
  return losses;
}

// One byte in the middle of a rank's pieces becomes another.
void damage(const fs::path& checkpoint, const char* file) {
  const fs::path path = checkpoint / "zeroth" / file;
  std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = static_cast<std::streamoff>(fs::file_size(path) - 8);
  bytes.seekg(middle);
  const char old = static_cast<char>(bytes.get());
  bytes.seekp(middle);
  bytes.put(static_cast<char>(old ^ 1));
}

}  // namespace

TEST_CASE(
    "a run goes on from its checkpoint with the same bits, on another layout with its states") {
  const TempFolder directory;
  const auto whole = train(config_of(2, 2), 2, {.steps = 5, .to = directory / "a"});
  const std::vector<double> rest(whole.begin() + 3, whole.end());
  CHECK(train(config_of(2, 2), 2, {3, 2, directory / "a/step-3"}) == rest);
  for (const int ranks : {1, 3, 4}) {
    for (const int stage : {0, 1, 3}) {
      const auto seen = train(config_of(stage, ranks), ranks, {3, 2, directory / "a/step-3"});
      for (size_t i = 0; i < rest.size(); ++i)
        CHECK(seen[i] == doctest::Approx(rest[i]).epsilon(2e-5));
    }
  }
}

TEST_CASE("a run goes on with the same bits from what ranks that share layers have saved") {
  const TempFolder directory;
  const comm::MeshShape one = comm::MeshShape::data_parallel(1);
  const comm::MeshShape grid = comm::MeshShape::data_parallel(2).with(comm::MeshDim::kTp, 2);
  train_shared(one, 0, {.steps = 3, .to = directory / "a"});
  const auto expected = train_shared(one, 0, {.first = 3, .steps = 2, .from = directory / "a"});
  for (const int stage : {0, 2, 3}) {
    const fs::path to = directory / ("b" + std::to_string(stage));
    train_shared(grid, stage, {.from = directory / "a", .to = to});
    CHECK(train_shared(one, 1, {.first = 3, .steps = 2, .from = to}) == expected);
  }
}

TEST_CASE("an engine that awaits a checkpoint has no values before, and goes on from it the same") {
  const TempFolder directory;
  for (const int stage : {0, 3}) {
    const configs::Config config = config_of(stage, 2);
    const fs::path to = directory / std::to_string(stage);
    const auto whole = train(config, 2, {.steps = 3, .to = to});
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto engine = initialize(testing::make_chain({.frozen = true}), config, mesh,
                                     {.awaits_checkpoint = true, .checks_memory = false});
      testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
      CHECK_THROWS_WITH_AS(engine->train_batch(loader),
                           doctest::Contains("train_batch: the engine awaits a checkpoint"), Error);
      CHECK_THROWS_WITH_AS(engine->eval_batch(loader, 1),
                           doctest::Contains("eval_batch: the engine awaits a checkpoint"), Error);
      REQUIRE(engine->load_checkpoint(to / "step-2"));
      for (int i = 0; i < 2; ++i) loader.next();
      CHECK(engine->train_batch(loader).loss == whole[2]);
    });
  }
}

TEST_CASE("a loader goes on where the one was that was saved with the run") {
  const TempFolder directory;
  const configs::Config config = config_of(1, 2);
  const auto whole = train(config, 2, {.steps = 4, .to = directory / "a"});
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto make = [&] {
      return testing::make_engine(testing::make_chain({.frozen = true}), config, mesh);
    };
    const testing::ChainLoader::Split split = {.rank = mesh->rank(), .world_size = 2};
    testing::ChainLoader first(split), second(split);
    auto engine = make();
    for (int i = 0; i < 3; ++i) engine->train_batch(first);
    engine->save_checkpoint(directory / "b", {.data = &first});
    engine = make();
    REQUIRE(engine->load_checkpoint(directory / "b", {.data = &second}));
    CHECK((second.position() == DataLoader::Position{.step = 3, .sample = 36}));
    CHECK(engine->train_batch(second).loss == whole[3]);

    CHECK_THROWS_WITH_AS(engine->load_checkpoint(directory / "a/step-2", {.data = &second}),
                         doctest::Contains("the checkpoint has no position of a loader"), Error);
    struct Blind final : DataLoader {
      model::MicroBatch next() override { return {}; }
    } blind;
    CHECK_THROWS_WITH_AS(engine->save_checkpoint(directory / "b", {.data = &blind}),
                         doctest::Contains("the loader has no position"), Error);
    CHECK_THROWS_WITH_AS(engine->load_checkpoint(directory / "b", {.data = &blind}),
                         doctest::Contains("this loader has no position to seek"), Error);
  });
}

TEST_CASE("the newest checkpoint is taken; one that is damaged on one rank gives way on all") {
  const TempFolder directory;
  const auto whole = train(config_of(3, 2), 2, {.steps = 4, .to = directory.path()});
  CHECK(train(config_of(3, 2), 2, {4, 1, directory.path()}).size() == 1);
  damage(directory / "step-4", "pieces-00001.safetensors");
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine =
        testing::make_engine(testing::make_chain({.frozen = true}), config_of(3, 2), mesh);
    const auto loaded = engine->load_checkpoint(directory.path());
    REQUIRE(loaded);
    CHECK(loaded->path == directory / "step-3");
    REQUIRE(loaded->warnings.size() == 1);
    CHECK(loaded->warnings[0].starts_with("step-4: rank "));
    CHECK(loaded->warnings[0].find("pieces-00001.safetensors") != std::string::npos);
    CHECK(engine->counters().steps == 3);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    for (int i = 0; i < 3; ++i) loader.next();
    CHECK(engine->train_batch(loader).loss == whole[3]);
  });
}

TEST_CASE("without a checkpoint there is nothing to load; without a whole one it is an Error") {
  const TempFolder directory;
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), config_of(1, 2), mesh);
    CHECK_FALSE(engine->load_checkpoint(directory / "nowhere"));
    CHECK_FALSE(engine->load_checkpoint(directory.path()));
  });
  train(config_of(1, 2), 2, {.steps = 1, .to = directory.path(), .chain = {}});
  damage(directory / "step-1", "pieces-00000.safetensors");
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), config_of(1, 2), mesh);
    CHECK_THROWS_WITH_AS(engine->load_checkpoint(directory.path()),
                         doctest::Contains("can be loaded:\n  step-1: rank "), Error);
  });
}

TEST_CASE("a checkpoint of another optimizer or model is refused with both") {
  const TempFolder directory;
  train(config_of(2, 1), 1, {.steps = 1, .to = directory.path(), .chain = {}});
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config lion = config_of(2, 1);
    lion.optimizer.kind = configs::OptimizerConfig::Kind::kLion;
    const auto other = testing::make_engine(testing::make_chain(), lion, mesh);
    CHECK_THROWS_WITH_AS(
        other->load_checkpoint(directory.path()),
        doctest::Contains("optimizer.type is AdamW in the checkpoint, Lion in this run"), Error);
    const auto wide =
        testing::make_engine(testing::make_chain({.hidden = 8}), config_of(2, 1), mesh);
    CHECK_THROWS_WITH_AS(
        wide->load_checkpoint(directory.path()),
        doctest::Contains(
            "master of embedding.weight has the shape [19, 6], the model's is [19, 8]"),
        Error);
    const auto low =
        testing::make_engine(testing::make_chain({.layers = 2}), config_of(2, 1), mesh);
    CHECK_THROWS_WITH_AS(low->load_checkpoint(directory.path()),
                         doctest::Contains("which is not a parameter of this model"), Error);
    const auto high =
        testing::make_engine(testing::make_chain({.layers = 4}), config_of(2, 1), mesh);
    CHECK_THROWS_WITH_AS(high->load_checkpoint(directory.path()),
                         doctest::Contains("is not stored"), Error);
  });
}

TEST_CASE("weights alone, or with counters, leave the rest as it is") {
  const TempFolder directory;
  train(config_of(2, 1), 1, {.steps = 3, .to = directory.path()});
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config lion = config_of(2, 1);
    lion.optimizer.kind = configs::OptimizerConfig::Kind::kLion;
    const auto engine = testing::make_engine(testing::make_chain({.frozen = true}), lion, mesh);
    REQUIRE(engine->load_checkpoint(directory.path(), {.parts = LoadedParts::kWeights}));
    CHECK(engine->counters().steps == 0);
    REQUIRE(engine->load_checkpoint(directory.path(), {.parts = LoadedParts::kWithoutOptimizer}));
    CHECK(engine->counters().steps == 3);
    CHECK(testing::read_state(engine->impl().optimizer(), 0, 1).abs().max().item<double>() == 0);
  });
}

TEST_CASE("a disk that fails one rank fails all, and the run goes on") {
  const TempFolder directory;
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), config_of(2, 2), mesh);
    testing::ChainLoader loader({.rank = mesh->rank(), .world_size = 2});
    engine->train_batch(loader);
    // Rank 1 has a file in the place of the folder.
    const fs::path mine = directory / (mesh->rank() == 0 ? "good" : "bad/in");
    if (mesh->rank() == 1) write_text(directory / "bad", "");
    CHECK_THROWS_WITH_AS(engine->save_checkpoint(mine), doctest::Contains("rank 1: "),
                         checkpoint::VoteFailed);
    CHECK(std::isfinite(engine->train_batch(loader).loss));
    CHECK(engine->save_checkpoint(directory / "later").path == directory / "later/step-2");
  });
}

}  // namespace zeroth::engine::checkpointer_test
