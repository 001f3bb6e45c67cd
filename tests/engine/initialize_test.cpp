#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "engine/engine.h"
#include "engine/state/model_sink.h"
#include "engine/state/run_state.h"
#include "tests/engine/split_chain.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "zero/memory_plan.h"

namespace zeroth::engine::initialize_test {
namespace {

// Collects what is saved.
struct Collected final : ModelSink {
  void begin(const std::vector<model::PlannedTensor>& parameters, torch::Dtype) override {
    announced = parameters;
  }
  void write(const std::string& name, const torch::Tensor& value) override {
    values[name] = value.clone();
  }
  std::vector<model::PlannedTensor> announced;
  std::map<std::string, torch::Tensor> values;
};

configs::Config stage_config(int stage) {
  configs::Config config;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold_elements = 0;
  return config;
}

std::filesystem::path fresh_folder(const std::string& name) {
  const auto path = std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()));
  std::filesystem::remove_all(path);
  return path;
}

}  // namespace

TEST_CASE("an engine refuses ranks on an axis that it knows nothing of") {
  testing::RankOptions options;
  options.grid = comm::MeshShape::data_parallel(2).with(comm::MeshDim::kCp, 2);
  testing::run_ranks(
      4,
      [](std::shared_ptr<comm::DeviceMesh> mesh) {
        CHECK_THROWS_WITH_AS(
            initialize(testing::make_chain({}), stage_config(0), mesh),
            "mesh data 2 x context 2 is not supported: an engine supports the dims "
            "pipe, data and tensor only",
            Error);
      },
      options);
}

TEST_CASE("blocks that do not say how ranks share them are refused by name where ranks would") {
  testing::RankOptions options;
  options.grid = comm::MeshShape().with(comm::MeshDim::kTp, 2);
  testing::run_ranks(
      2,
      [](std::shared_ptr<comm::DeviceMesh> mesh) {
        CHECK_THROWS_WITH_AS(initialize(testing::make_chain({}), stage_config(0), mesh),
                             doctest::Contains("block embedding does not define how 2 ranks"),
                             Error);
      },
      options);
}

TEST_CASE(
    "what is saved is what the blocks held, tied weights once, at every stage and number of "
    "ranks") {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(stage);
      CAPTURE(ranks);
      testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const model::Blocks fresh = testing::make_chain({.tied = true});
        const auto engine =
            initialize(testing::make_chain({.tied = true}), stage_config(stage), mesh);
        Collected sink;
        engine->save_model(sink);
        if (mesh->rank() != 0) {
          CHECK(sink.values.empty());
          return;
        }
        CHECK(sink.announced.size() == 7);
        CHECK(sink.values.size() == 7);
        CHECK(sink.values.count("head.weight") == 0);
        for (const auto& block : fresh) {
          for (const auto& item : block->named_parameters()) {
            const std::string name = block->label() + "." + item.key();
            if (name != "head.weight")
              CHECK(at::equal(sink.values.at(name), item.value().detach()));
          }
        }
      });
    }
  }
}

TEST_CASE("ranks that share layers save the model that one rank saves, in the same bytes") {
  const auto saved = [](const comm::MeshShape& shape, configs::Config config, SavedValues values) {
    config.batch = {2 * shape[comm::MeshDim::kDp], 2, 1};
    Collected sink;
    testing::RankOptions options;
    options.grid = shape;
    const auto directory = fresh_folder("zeroth_shared_");
    testing::run_ranks(
        shape.ranks(),
        [&](std::shared_ptr<comm::DeviceMesh> mesh) {
          const auto engine = initialize(make_split_chain(*mesh), config, mesh);
          Collected others;
          engine->save_model(mesh->rank() == 0 ? sink : others, values);
          CHECK(others.values.empty());
          engine->save_model(directory);
        },
        options);
    const std::string bytes = read_file(directory / "model.safetensors", 1 << 20);
    std::filesystem::remove_all(directory);
    return std::pair(sink, bytes);
  };
  for (const int stage : {0, 2, 3}) {
    for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
      configs::Config config = stage_config(stage);
      config.precision = precision;
      for (const auto values : {SavedValues::kWorking, SavedValues::kMasters}) {
        const auto [expected, file] = saved(comm::MeshShape::data_parallel(1), config, values);
        for (const auto& [data, tensor] : {std::pair{2, 2}, {1, 4}}) {
          CAPTURE(stage);
          CAPTURE(tensor);
          const auto shape = comm::MeshShape::data_parallel(data).with(comm::MeshDim::kTp, tensor);
          const auto [found, same_file] = saved(shape, config, values);
          CHECK(same_file == file);
          REQUIRE(found.values.size() == expected.values.size());
          for (const auto& [name, value] : expected.values) {
            CHECK_MESSAGE(at::equal(found.values.at(name), value), name);
          }
        }
      }
    }
  }
}

TEST_CASE("masters are saved as they are in fp32, frozen parameters widened, at every stage") {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 3}) {
      CAPTURE(stage);
      CAPTURE(ranks);
      testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const testing::ChainOptions options{.tied = true, .frozen = true};
        configs::Config config = stage_config(stage);
        config.precision = configs::Precision::kBf16;
        config.batch = {2 * ranks, 2, 1};
        const auto engine = initialize(testing::make_chain(options), config, mesh);
        Collected first, masters, working;
        engine->save_model(first, SavedValues::kMasters);
        testing::ChainLoader loader(
            {.global_batch = 2 * ranks, .rank = mesh->rank(), .world_size = ranks});
        engine->train_batch(loader);
        engine->save_model(masters, SavedValues::kMasters);
        engine->save_model(working);
        if (mesh->rank() != 0) return;
        bool rounded = false;
        for (const auto& block : testing::make_chain(options)) {
          for (const auto& item : block->named_parameters()) {
            const std::string name = block->label() + "." + item.key();
            if (name == "head.weight") continue;
            CAPTURE(name);
            const torch::Tensor& value = masters.values.at(name);
            REQUIRE((value.scalar_type() == torch::kFloat32));
            CHECK(at::equal(value.to(torch::kBFloat16), working.values.at(name)));
            rounded = rounded || !at::equal(value, working.values.at(name).to(torch::kFloat32));
            if (item.value().requires_grad())
              CHECK(at::equal(first.values.at(name), item.value().detach()));
          }
        }
        CHECK(rounded);
      });
    }
  }
}

TEST_CASE(
    "an engine that only evaluates gives the same loss and model, and has nothing to update") {
  for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int ranks : {1, 2}) {
        CAPTURE(stage);
        CAPTURE(ranks);
        testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
          const testing::ChainOptions options{.tied = true, .frozen = true};
          configs::Config config = stage_config(stage);
          config.precision = precision;
          config.batch = {2 * ranks, 2, 1};
          const auto trains = initialize(testing::make_chain(options), config, mesh);
          config.zero.offload_optimizer.device = configs::OffloadDevice::kNvme;
          config.zero.offload_optimizer.nvme_path = "/proc/sys/x";  // not even root may write there
          const auto engine =
              initialize(testing::make_chain(options), config, mesh, {.trains = false});
          const testing::ChainLoader::Split split{
              .global_batch = 2 * ranks, .rank = mesh->rank(), .world_size = ranks};
          testing::ChainLoader seen(split), again(split);
          CHECK(engine->eval_batch(again, 3).loss == trains->eval_batch(seen, 3).loss);
          Collected expected, saved;
          trains->save_model(expected);
          engine->save_model(saved);
          CHECK(saved.values.size() == expected.values.size());
          for (const auto& [name, value] : expected.values) {
            CHECK(at::equal(saved.values.at(name), value));
          }
          const zero::MemoryPlan memory = engine->memory();
          CHECK(memory.masters.total() + memory.states.total() + memory.gradients.total() == 0);
          CHECK_THROWS_WITH_AS(engine->train_batch(again),
                               "train_batch: the engine was created for evaluation only", Error);
        });
      }
    }
  }
}

TEST_CASE("the reading of weights ends on all ranks when one of them wants it to") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    int asked = 0;
    const auto wish = [&] { return mesh->rank() == 1 && ++asked == 2; };
    CHECK_THROWS_AS(
        initialize(testing::make_chain(), stage_config(3), mesh, {.stop_requested = wish}),
        StopRequested);
    CHECK_NOTHROW(initialize(testing::make_chain(), stage_config(3), mesh,
                             {.stop_requested = [] { return false; }}));
  });
}

TEST_CASE("blocks whose values differ between ranks start from rank 0's") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    model::Blocks blocks = testing::make_chain();
    const torch::Tensor first = blocks[1]->parameters()[0].detach();
    const torch::Tensor original = first.clone();
    if (mesh->rank() == 1) first.add_(1.0);
    const auto engine = initialize(blocks, stage_config(2), mesh);
    Collected sink;
    engine->save_model(sink);
    if (mesh->rank() == 0) CHECK(at::equal(sink.values.at("layers.0.weight"), original));
  });
}

TEST_CASE("a value that is not finite is refused by the parameter's name") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    model::Blocks blocks = testing::make_chain();
    blocks[2]->parameters()[1].detach()[3] = NAN;
    CHECK_THROWS_WITH_AS(initialize(blocks, stage_config(0), mesh),
                         "parameter layers.1.bias holds a value that is not finite", Error);
  });
}

TEST_CASE("a value beyond fp16 is refused by the parameter's name") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    model::Blocks blocks = testing::make_chain();
    blocks[2]->parameters()[0].detach()[0][3] = 1e5;
    configs::Config config = stage_config(0);
    config.precision = configs::Precision::kFp16;
    CHECK_THROWS_WITH_AS(initialize(blocks, config, mesh),
                         doctest::Contains("parameter layers.1.weight holds 100000"), Error);
  });
}

TEST_CASE("what this machine cannot hold is refused on every rank before anything is taken") {
  for (const int ranks : {1, 2}) {
    testing::run_ranks(ranks, [](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto refusal = [&](const configs::Config& config, const InitOptions& options) {
        model::Blocks blocks = testing::make_chain();
        blocks[1]->register_parameter("huge", torch::empty({int64_t{1} << 40}, torch::kMeta));
        try {
          initialize(blocks, config, mesh, options);
        } catch (const Error& error) {
          return std::string(error.what());
        }
        return std::string();
      };
      configs::Config config = stage_config(3);
      config.zero.max_live_elements = 0;
      const std::string training = refusal(config, {});
      CHECK_MESSAGE(training.starts_with("the run needs "), training);
      CHECK(training.find("it does not fit even with full sharding and offload") !=
            std::string::npos);
      CHECK(refusal(config, {.trains = false}).starts_with("the run needs "));
      config.zero.offload_optimizer.device = configs::OffloadDevice::kNvme;
      config.zero.offload_optimizer.nvme_path = "/proc/sys/x";
      CHECK(refusal(config, {}).starts_with("zero_optimization.offload_optimizer.nvme_path: "));
      CHECK(refusal(config, {.trains = false}).starts_with("the run needs "));
    });
  }
}

TEST_CASE("what one rank refuses ends the others too, which do not guess its reason") {
  const auto directory = fresh_folder("zeroth_refused_");
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config = stage_config(1);
    config.zero.offload_optimizer.device = configs::OffloadDevice::kNvme;
    config.zero.offload_optimizer.nvme_path =
        mesh->rank() == 1 ? "/proc/sys/x" : directory.string();
    const std::string expected = mesh->rank() == 1
                                     ? "zero_optimization.offload_optimizer.nvme_path: "
                                     : "rank 1 refuses this run; its own message says why";
    CHECK_THROWS_WITH_AS(initialize(testing::make_chain(), config, mesh),
                         doctest::Contains(expected.c_str()), Error);
  });
}

TEST_CASE("save_model writes a folder once") {
  const auto directory = fresh_folder("zeroth_save_");
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = initialize(testing::make_chain(), stage_config(3), mesh);
    engine->save_model(directory);
  });
  CHECK(std::filesystem::file_size(directory / "model.safetensors") > 1000);
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = initialize(testing::make_chain(), stage_config(0), mesh);
    CHECK_THROWS_AS(engine->save_model(directory), Error);
  });
  std::filesystem::remove_all(directory);
}

TEST_CASE("save_model of a value that is not finite names the parameter and leaves no folder") {
  const auto directory = fresh_folder("zeroth_not_finite_");
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const model::Blocks blocks = testing::make_chain();
    const auto engine = initialize(blocks, stage_config(0), mesh);
    blocks[2]->parameters()[1].detach()[3] = -NAN;
    const std::string expected =
        directory.string() + " is not saved: parameter layers.1.bias holds nan";
    CHECK_THROWS_WITH_AS(engine->save_model(directory), expected.c_str(), Error);
  });
  CHECK_FALSE(std::filesystem::exists(directory));
}

TEST_CASE("a chain without values needs a source of weights") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    model::Blocks blocks = testing::make_chain();
    CHECK_FALSE(has_meta_parameters(blocks));
    blocks[1]->register_parameter("extra", torch::empty({2}, torch::kMeta));
    CHECK(has_meta_parameters(blocks));
    CHECK_THROWS_AS(initialize(blocks, stage_config(0), mesh), Error);
  });
}

}  // namespace zeroth::engine::initialize_test
