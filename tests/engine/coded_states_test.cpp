// Runs whose optimizer states are codes of 8 bits go on from their checkpoints: on ranks that cut
// parameters alike with the same bits, on others near.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>

#include "base/error.h"
#include "engine/engine_impl.h"
#include "optim/coded_states.h"
#include "tests/engine/chain_config.h"
#include "tests/engine/saved_run.h"
#include "tests/engine/split_chain.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/read_state.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::coded_states_test {
namespace {

using comm::MeshDim;
using comm::MeshShape;
using Losses = std::vector<double>;

// Matrices of 576 and 456 elements have coded states, the last block of which is short.
constexpr testing::ChainOptions kChain = {.hidden = 24, .frozen = true};

configs::Config config_of(int stage, int ranks, int64_t min_8bit_size = 400) {
  configs::Config config = chain_config(12 / ranks, 1, ranks);
  config.zero.stage = stage;
  config.zero.sub_group_size_elements = 300;
  config.gradient_clipping = 0.5;
  config.optimizer = {.kind = configs::OptimizerConfig::Kind::kAdamW8bit,
                      .lr = 0.01,
                      .weight_decay = 0.1,
                      .min_8bit_size = min_8bit_size};
  return config;
}

struct StepSpan {
  int first = 0;  // step, from 0
  int steps = 0;
};

Losses train(Engine& engine, const comm::DeviceMesh& mesh, const StepSpan& span) {
  const int data_ranks = mesh.layout().shape()[MeshDim::kDp];
  testing::ChainLoader loader({.rank = mesh.coordinate(MeshDim::kDp), .world_size = data_ranks});
  for (int i = 0; i < span.first; ++i) loader.next();
  Losses losses;
  for (int i = 0; i < span.steps; ++i) losses.push_back(engine.train_batch(loader).loss);
  return losses;
}

// Trains a part of a run of the chain that begins from `from`, if there is one, and saves it.
Losses train_chain(const configs::Config& config, int ranks, const StepSpan& span, SavedRun* from,
                   SavedRun* to) {
  Losses losses;
  testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(kChain), config, mesh);
    if (from != nullptr) {
      SavedRun::Source source(*from);
      engine->load_states(source, from->counters);
    }
    const Losses own = train(*engine, *mesh, span);
    SavedRun::Sink sink(*to);
    engine->save_states(sink);
    if (mesh->rank() != 0) return;
    losses = own;
    to->counters = engine->counters();
  });
  to->check_complete();
  return losses;
}

void check_goes_on(const configs::Config& config, int ranks) {
  SavedRun whole, half, end;
  const Losses expected = train_chain(config, ranks, {0, 6}, nullptr, &whole);
  Losses seen = train_chain(config, ranks, {0, 3}, nullptr, &half);
  const Losses more = train_chain(config, ranks, {3, 3}, &half, &end);
  seen.insert(seen.end(), more.begin(), more.end());
  CHECK(seen == expected);
  CHECK(end == whole);
}

// Matrices of the split chain have up to 192 elements: one code block, while each of two ranks has
// one of its own for its half.
constexpr int64_t kMinOfSplitChain = 90;

template <typename Use>
void visit_split(int stage, const MeshShape& shape, const Use& use,
                 int64_t min_8bit_size = kMinOfSplitChain) {
  run_split_chain(shape, config_of(stage, shape[MeshDim::kDp], min_8bit_size), use);
}

void save(Engine& engine, SavedRun& to) {
  SavedRun::Sink sink(to);
  engine.save_states(sink);
  to.counters = engine.counters();
}

// What one rank has after three steps. The ranks of a group cannot train the split chain.
void train_alone(SavedRun& to) {
  visit_split(0, MeshShape(), [&](Engine& engine, comm::DeviceMesh& mesh) {
    train(engine, mesh, {0, 3});
    save(engine, to);
  });
  to.check_complete();
}

// Takes states over on other ranks and saves them again; returns whether any were quantized anew.
bool pass_on(SavedRun& from, SavedRun& to, int stage, const MeshShape& shape) {
  std::atomic<bool> anew = false;
  visit_split(stage, shape, [&](Engine& engine, comm::DeviceMesh&) {
    SavedRun::Source source(from);
    if (load_states(engine.impl().sharded_state(), source)) anew = true;
    engine.load_states(source, from.counters);
    save(engine, to);
  });
  to.check_complete();
  return anew;
}

// Doubles the maxima of the second of two ranks that share layers, where they share a parameter.
void double_maxima(Engine& engine, const comm::DeviceMesh& mesh) {
  if (mesh.coordinate(MeshDim::kTp) == 0) return;
  const ShardedState held = engine.impl().sharded_state();
  for (size_t unit = 0; unit < held.plan.units.size(); ++unit) {
    if (!held.plan.units[unit].coded || held.plan.units[unit].num_replicas > 1) continue;
    for (const size_t maxima : {3, 4}) {
      CHECK(held.optimizer.states().arrays(unit).at(maxima).block == 256);
      held.optimizer.states().write(unit, maxima,
                                    2 * testing::read_state(held.optimizer, unit, maxima));
    }
  }
}

// The moments of layers.0.qkv, whose maxima were saved in this shape.
torch::Tensor moments_of(SavedRun& run, const std::string& state,
                         const std::vector<int64_t>& maxima_shape) {
  SavedRun::Source source(run);
  const auto read = [&](const std::string& name, torch::Dtype dtype,
                        const std::vector<int64_t>& shape) {
    const TensorSlice box = TensorSlice::full(shape);
    torch::Tensor values = at::empty({box.elements()}, dtype);
    source.read({"layers.0.qkv", name, dtype, box, 0, box.elements()}, values);
    return values;
  };
  const torch::Tensor codes = read(state, torch::kByte, {8, 24});
  const torch::Tensor maxima = read(state + "_absmax", torch::kFloat, maxima_shape).expand({192});
  torch::Tensor moments = at::empty({192});
  for (int64_t i = 0; i < 192; ++i) {
    moments[i] = optim::kernel::decode(codes[i].item<uint8_t>(), maxima[i].item<float>(),
                                       /*is_signed=*/state == "exp_avg");
  }
  return moments;
}

MeshShape grid(int data, int tensor) {
  return MeshShape::data_parallel(data).with(MeshDim::kTp, tensor);
}

}  // namespace

TEST_CASE("a run with coded states goes on with the same bits, at every stage") {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(stage);
      CAPTURE(ranks);
      check_goes_on(config_of(stage, ranks), ranks);
    }
  }
}

TEST_CASE("... in 16 bits and from any resting place") {
  const TempFolder directory;
  for (const auto precision : {configs::Precision::kBf16, configs::Precision::kFp16}) {
    for (const auto place : {configs::OffloadDevice::kNone, configs::OffloadDevice::kCpu,
                             configs::OffloadDevice::kNvme}) {
      configs::Config config = config_of(2, 2);
      config.precision = precision;
      config.loss_scale.initial_scale_power = 4;
      config.zero.offload_optimizer.device = place;
      config.zero.offload_optimizer.nvme_path = directory.path().string();
      check_goes_on(config, 2);
    }
  }
}

TEST_CASE("codes and maxima pass between any numbers of data ranks and stages without a change") {
  SavedRun one;
  train_chain(config_of(0, 1), 1, {0, 3}, nullptr, &one);
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {2, 3, 4}) {
      CAPTURE(stage);
      CAPTURE(ranks);
      SavedRun other, back;
      train_chain(config_of(stage, ranks), ranks, {0, 0}, &one, &other);
      CHECK(other == one);
      train_chain(config_of(3 - stage, 5 - ranks), 5 - ranks, {0, 0}, &other, &back);
      CHECK(back == one);
    }
  }
}

TEST_CASE("codes and maxima pass to ranks that share layers, and back, without a change") {
  SavedRun one;
  train_alone(one);
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto& shape : {grid(2, 2), grid(1, 4)}) {
      CAPTURE(stage);
      SavedRun shared, back;
      CHECK_FALSE(pass_on(one, shared, stage, shape));
      CHECK_FALSE(pass_on(shared, back, 3 - stage, grid(3, 1)));
      CHECK(back == one);
    }
  }
}

TEST_CASE("moments whose blocks differ are kept by the same slices, and quantized anew by others") {
  SavedRun one, halves, same, other;
  train_alone(one);
  visit_split(2, grid(1, 2), [&](Engine& engine, comm::DeviceMesh& mesh) {
    SavedRun::Source source(one);
    engine.load_states(source, one.counters);
    double_maxima(engine, mesh);
    save(engine, halves);
  });
  CHECK_FALSE(pass_on(halves, same, 3, grid(2, 2)));
  CHECK((same == halves));
  CHECK(pass_on(halves, other, 1, grid(2, 1)));
  for (const std::string state : {"exp_avg", "exp_avg_sq"}) {
    const torch::Tensor saved = moments_of(halves, state, {8, 24});
    const torch::Tensor anew = moments_of(other, state, {1});
    const double largest = saved.abs().max().item<double>();
    CHECK(largest > 0);
    // Half of the largest distance between two codes.
    CHECK((saved - anew).abs().max().item<double>() < 0.0071 * largest);
    CHECK_FALSE(at::equal(saved, anew));
  }
}

TEST_CASE("a checkpoint warns where states are quantized anew, and names states of another dtype") {
  const TempFolder directory;
  SavedRun one;
  train_alone(one);
  visit_split(2, grid(1, 2), [&](Engine& engine, comm::DeviceMesh& mesh) {
    SavedRun::Source source(one);
    engine.load_states(source, one.counters);
    double_maxima(engine, mesh);
    engine.save_checkpoint(directory.path());
  });
  const auto warnings = [&](const MeshShape& shape, int64_t min_8bit_size) {
    std::vector<std::string> found;
    visit_split(
        2, shape,
        [&](Engine& engine, comm::DeviceMesh& mesh) {
          const auto loaded = engine.load_checkpoint(directory.path());
          REQUIRE(loaded.has_value());
          if (mesh.rank() == 0) found = loaded->warnings;
        },
        min_8bit_size);
    return found;
  };
  CHECK(warnings(grid(2, 2), kMinOfSplitChain).empty());
  const std::vector<std::string> other = warnings(grid(2, 1), kMinOfSplitChain);
  REQUIRE(other.size() == 1);
  CHECK(other[0].find("step-3: the 8-bit optimizer states are quantized anew") !=
        std::string::npos);
  std::string message;
  try {
    warnings(grid(1, 2), 1'000'000);
  } catch (const std::exception& error) {
    message = error.what();
  }
  CHECK(message.find("is stored as U8, which this run does not use (min_8bit_size)") !=
        std::string::npos);
}

TEST_CASE("a step whose gradient is not finite is skipped and leaves the codes as they are") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    double factor = 1;
    model::Blocks blocks = testing::make_chain({.hidden = 24});
    blocks.insert(blocks.begin() + 2, std::make_shared<Factor>(&factor));
    configs::Config config = config_of(0, 1);
    const auto engine = testing::make_engine(blocks, config, mesh);
    testing::ChainLoader loader({.rank = 0, .world_size = 1});
    engine->train_batch(loader);
    const auto saved = [&](SavedRun& run) {
      SavedRun::Sink sink(run);
      engine->save_states(sink);
    };
    SavedRun before, after;
    saved(before);
    factor = INFINITY;
    CHECK(engine->train_batch(loader).skipped);
    saved(after);
    CHECK(after == before);
    factor = 1;
    CHECK(std::isfinite(engine->train_batch(loader).loss));
  });
}

}  // namespace zeroth::engine::coded_states_test
