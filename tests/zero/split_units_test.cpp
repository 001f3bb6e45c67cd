// Units that differ in which ranks hold them, through stores, reducers and updates.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/blocks/main_grad.h"
#include "tests/support/ranks.h"
#include "tests/support/read_state.h"
#include "tests/zero/split_block.h"
#include "zero/memory_plan.h"
#include "zero/strategy.h"
#include "zero/unit.h"

namespace zeroth::zero::split_units_test {
namespace {

using comm::MeshDim;
using comm::MeshShape;
using Kind = configs::OptimizerConfig::Kind;

const MeshShape kGrids[] = {MeshShape::data_parallel(2).with(MeshDim::kTp, 2),
                            MeshShape::data_parallel(2).with(MeshDim::kTp, 4),
                            MeshShape().with(MeshDim::kTp, 4)};

void on_grid(const MeshShape& shape, const std::function<void(const comm::DeviceMesh&)>& run) {
  testing::RankOptions options;
  options.grid = shape;
  testing::run_ranks(
      shape.ranks(), [&](std::shared_ptr<comm::DeviceMesh> mesh) { run(*mesh); }, options);
}

model::Blocks blocks_on(const comm::DeviceMesh& mesh) {
  return {std::make_shared<SplitBlock>("first", mesh), std::make_shared<SplitBlock>("last", mesh)};
}

configs::Config config_of(int stage, int64_t micros) {
  configs::Config config;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold_elements = 0;
  config.batch.accumulation_steps = micros;
  return config;
}

// The unit's whole buffer, of which `value_of` gives each whole parameter.
torch::Tensor flat(const Unit& unit,
                   const std::function<torch::Tensor(const GlobalSlice&)>& value_of) {
  const torch::Tensor buffer = torch::zeros({unit.layout.numel()});
  for (const Slot& slot : unit.layout.slots()) {
    torch::Tensor box = value_of(slot.global);
    const TensorSlice& slice = slot.global.slice;
    for (size_t d = 0; d < slice.sizes.size(); ++d) {
      box = box.narrow(static_cast<int64_t>(d), slice.offsets[d], slice.sizes[d]);
    }
    buffer.narrow(0, slot.offset, slot.numel).copy_(box.flatten());
  }
  return buffer;
}

// Each element another value; those of one parameter near to each other.
torch::Tensor weights_of(const GlobalSlice& whole) {
  const auto salt = static_cast<double>(whole.name.size());
  const TensorSlice& slice = whole.slice;
  return (torch::arange(slice.tensor_elements(), torch::kFloat) / 512 + salt).reshape(slice.shape);
}

// Exact in every order of sums.
torch::Tensor gradient_of(const GlobalSlice& whole) {
  const TensorSlice& slice = whole.slice;
  return (torch::arange(slice.tensor_elements(), torch::kFloat) % 13 - 4).reshape(slice.shape);
}

// Gives every holder's part of the gradient of `micros` micro-batches, which adds up to it.
void run_step(const UnitPlan& plan, const Strategy& strategy, int64_t micros) {
  const torch::NoGradGuard no_grad;
  strategy.grads->set_backward_order(testing::backward_order(plan.block_units.size(), micros));
  for (int64_t micro = 0; micro < micros; ++micro) {
    for (size_t block = plan.block_units.size(); block-- > 0;) {
      strategy.grads->open(block);
      for (const size_t u : plan.block_units[block]) {
        const Unit& unit = plan.units[u];
        const auto addends = static_cast<double>(unit.layout.num_shards() * micros);
        const torch::Tensor whole = flat(unit, gradient_of) / addends;
        for (size_t i = 0; i < unit.params.size(); ++i) {
          const Slot& slot = unit.layout.slots()[i];
          const torch::Tensor own = whole.narrow(0, slot.offset, slot.numel).view(slot.shape());
          model::accumulate_grad(unit.params[i], own);
        }
      }
      strategy.grads->add(block);
    }
  }
}

void set_weights(const UnitPlan& plan, const Strategy& strategy) {
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const Range range = strategy.store->range(u);
    strategy.optimizer->states().write(
        u, 0, flat(plan.units[u], weights_of).narrow(0, range.begin, range.size()));
  }
}

// The block's parameters by the whole one's name, once gathered.
std::map<std::string, torch::Tensor> gathered(const UnitPlan& plan, const Strategy& strategy,
                                              size_t block) {
  std::map<std::string, torch::Tensor> values;
  const Lease lease = strategy.params->gather(block);
  for (const size_t u : plan.block_units[block]) {
    const Unit& unit = plan.units[u];
    for (size_t i = 0; i < unit.params.size(); ++i) {
      values[unit.layout.slots()[i].global.name] = unit.params[i].detach().clone();
    }
  }
  return values;
}

// This rank's masters and states of a unit after an update.
std::vector<torch::Tensor> arrays_of(const Strategy& strategy, size_t unit) {
  std::vector<torch::Tensor> arrays;
  for (const OptimizerStates::Array& array : strategy.optimizer->states().arrays(unit)) {
    const torch::Tensor values = testing::read_state(*strategy.optimizer, unit, arrays.size());
    arrays.push_back(values.to(array.dtype));
  }
  return arrays;
}

// What one rank makes of whole parameters, by their names.
struct Updated {
  std::map<std::string, torch::Tensor> values;               // those of block 1
  std::vector<std::map<std::string, torch::Tensor>> arrays;  // of all blocks, as arrays_of()
};

Updated updated_whole(const configs::Config& config) {
  Updated updated;
  on_grid(MeshShape(), [&](const comm::DeviceMesh& mesh) {
    // Its parameters have the names of the whole ones on the grid.
    struct WholeBlock final : model::Block {
      explicit WholeBlock(const std::string& label) : Block(label) {
        register_parameter("whole_columns", torch::zeros({5, 16}));
        register_parameter("whole_keys", torch::zeros({12, 7}));
        register_parameter("norm", torch::zeros({9}));
      }
      torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override { return x; }
    };
    const model::Blocks blocks = {std::make_shared<WholeBlock>("first"),
                                  std::make_shared<WholeBlock>("last")};
    UnitPlan plan = plan_units(blocks, mesh);
    const Strategy strategy = make_strategy(plan, config, mesh);
    set_weights(plan, strategy);
    run_step(plan, strategy, config.batch.accumulation_steps);
    strategy.grads->finish();
    strategy.params->step(optim::default_step(config.optimizer, 1));
    updated.values = gathered(plan, strategy, 1);
    for (size_t u = 0; u < plan.units.size(); ++u) {
      const std::vector<torch::Tensor> arrays = arrays_of(strategy, u);
      updated.arrays.resize(arrays.size());
      for (const Slot& slot : plan.units[u].layout.slots()) {
        for (size_t i = 0; i < arrays.size(); ++i) {
          updated.arrays[i][slot.global.name] =
              arrays[i].narrow(0, slot.offset, slot.numel).view(slot.shape());
        }
      }
    }
  });
  return updated;
}

}  // namespace

TEST_CASE("a gather brings the whole box from the ranks that hold it, at every stage") {
  for (const MeshShape& grid : kGrids) {
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(grid.str());
      CAPTURE(stage);
      on_grid(grid, [&](const comm::DeviceMesh& mesh) {
        const model::Blocks blocks = blocks_on(mesh);
        UnitPlan plan = plan_units(blocks, mesh);
        const Strategy strategy = make_strategy(plan, config_of(stage, 1), mesh);
        set_weights(plan, strategy);
        for (size_t block = 0; block < blocks.size(); ++block) {
          const Lease lease = strategy.params->gather(block);
          for (const size_t unit : plan.block_units[block]) {
            CHECK(at::equal(strategy.store->buffers().whole(unit),
                            flat(plan.units[unit], weights_of)));
          }
        }
      });
    }
  }
}

TEST_CASE("gradients are sums over the ranks that hold the same, and squares count once") {
  for (const MeshShape& grid : kGrids) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int64_t micros : {1, 2}) {
        CAPTURE(grid.str());
        CAPTURE(stage);
        CAPTURE(micros);
        on_grid(grid, [&](const comm::DeviceMesh& mesh) {
          const model::Blocks blocks = blocks_on(mesh);
          UnitPlan plan = plan_units(blocks, mesh);
          const Strategy strategy = make_strategy(plan, config_of(stage, micros), mesh);
          run_step(plan, strategy, micros);
          const torch::Tensor squares = strategy.grads->finish().sum();
          for (size_t unit = 0; unit < plan.units.size(); ++unit) {
            const Range range = strategy.grads->range(unit);
            CHECK(at::equal(
                strategy.grads->grad(unit),
                flat(plan.units[unit], gradient_of).narrow(0, range.begin, range.size())));
          }
          mesh.world().all_reduce(squares).wait();
          double once = 0;
          for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5, 16}, {12, 7}, {9}}) {
            const torch::Tensor whole = gradient_of({"", TensorSlice::full(shape)});
            once += 2 * whole.square().sum().item<double>();  // of two blocks
          }
          CHECK(squares.item<double>() == doctest::Approx(once).epsilon(1e-6));
        });
      }
    }
  }
}

TEST_CASE("an update is that of one rank which holds all, norms of whole parameters included") {
  for (const Kind kind : {Kind::kAdamW, Kind::kLamb}) {
    for (const int stage : {0, 1, 2, 3}) {
      configs::Config config = config_of(stage, 1);
      config.optimizer.kind = kind;
      config.optimizer.lr = 0.1;
      config.optimizer.weight_decay = 0.1;
      const auto whole = updated_whole(config).values;
      for (const MeshShape& grid : kGrids) {
        CAPTURE(static_cast<int>(kind));
        CAPTURE(stage);
        CAPTURE(grid.str());
        on_grid(grid, [&](const comm::DeviceMesh& mesh) {
          const model::Blocks blocks = blocks_on(mesh);
          UnitPlan plan = plan_units(blocks, mesh);
          const Strategy strategy = make_strategy(plan, config, mesh);
          set_weights(plan, strategy);
          run_step(plan, strategy, 1);
          strategy.grads->finish();
          strategy.params->step(optim::default_step(config.optimizer, 1));
          const Lease lease = strategy.params->gather(1);
          for (const size_t unit : plan.block_units[1]) {
            const auto updated = [&](const GlobalSlice& of) { return whole.at(of.name); };
            const torch::Tensor values = strategy.store->buffers().whole(unit);
            const torch::Tensor expected = flat(plan.units[unit], updated);
            for (const Slot& slot : plan.units[unit].layout.slots()) {
              CHECK(at::allclose(values.narrow(0, slot.offset, slot.numel),
                                 expected.narrow(0, slot.offset, slot.numel), 1e-6, 1e-6));
            }
          }
        });
      }
    }
  }
}

TEST_CASE("masters and moments in bf16 are rounded as those of one rank, bit by bit") {
  for (const Kind kind : {Kind::kAdamW, Kind::kLion}) {
    for (const int stage : {0, 1, 2, 3}) {
      configs::Config config = config_of(stage, 1);
      config.precision = configs::Precision::kBf16;
      config.optimizer = {.kind = kind, .lr = 1e-2, .weight_decay = 0.1};
      config.optimizer.bf16_masters = config.optimizer.bf16_states = true;
      config.zero.sub_group_size_elements = 64;
      const auto expected = updated_whole(config).arrays;
      for (const MeshShape& grid : kGrids) {
        CAPTURE(static_cast<int>(kind));
        CAPTURE(stage);
        CAPTURE(grid.str());
        on_grid(grid, [&](const comm::DeviceMesh& mesh) {
          const model::Blocks blocks = blocks_on(mesh);
          UnitPlan plan = plan_units(blocks, mesh);
          const Strategy strategy = make_strategy(plan, config, mesh);
          set_weights(plan, strategy);
          run_step(plan, strategy, 1);
          strategy.grads->finish();
          strategy.params->step(optim::default_step(config.optimizer, 1));
          for (size_t block = 0; block < blocks.size(); ++block) {
            const Lease lease = strategy.params->gather(block);  // brings it up to date
          }
          for (size_t unit = 0; unit < plan.units.size(); ++unit) {
            const FlatLayout& layout = plan.units[unit].layout;
            const Range owned_range = strategy.store->range(unit);
            const std::vector<torch::Tensor> arrays = arrays_of(strategy, unit);
            for (size_t i = 0; i < arrays.size(); ++i) {
              const torch::Tensor whole = flat(plan.units[unit], [&](const GlobalSlice& of) {
                return expected.at(i).at(of.name);
              });
              CHECK((arrays[i].scalar_type() == torch::kBFloat16));
              for (size_t slot = 0; slot < layout.slots().size(); ++slot) {
                const Range own = layout.overlap(slot, owned_range);
                if (own.size() == 0) continue;
                const int64_t offset = layout.slots()[slot].offset + own.begin;
                CHECK(at::equal(arrays[i].narrow(0, offset - owned_range.begin, own.size()),
                                whole.narrow(0, offset, own.size()).to(torch::kBFloat16)));
              }
            }
          }
        });
      }
    }
  }
}

TEST_CASE("what is planned is what a rank of a grid holds") {
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    on_grid(kGrids[1], [&](const comm::DeviceMesh& mesh) {
      const model::Blocks blocks = blocks_on(mesh);
      UnitPlan plan = plan_units(blocks, mesh);
      const configs::Config config = config_of(stage, 2);
      const MemoryPlan memory =
          plan_memory(plan, config, torch::kCPU,
                      {.accesses = {0, 1, 1, 0}, .backward_order = testing::backward_order(2, 2)});
      const Strategy strategy = make_strategy(plan, config, mesh);
      run_step(plan, strategy, 2);
      strategy.grads->finish();
      CHECK(memory.parameters.device == strategy.store->persistent_bytes());
      CHECK(memory.gradients.device ==
            strategy.grads->persistent_bytes() - strategy.grads->buffer_bytes());
      CHECK(memory.gradient_buffers.device == strategy.grads->buffer_bytes());
    });
  }
}

TEST_CASE("what a rank holds alone is whole there, while what others hold too is cut") {
  on_grid(kGrids[2], [](const comm::DeviceMesh& mesh) {
    const model::Blocks blocks = blocks_on(mesh);
    UnitPlan plan = plan_units(blocks, mesh);
    const Strategy strategy = make_strategy(plan, config_of(3, 1), mesh);
    CHECK(strategy.description.find("(one rank)") == std::string::npos);
    for (const Unit& unit : plan.units) {
      CHECK(unit.gather_policy ==
            (unit.num_replicas == 1 ? GatherPolicy::kNever : GatherPolicy::kBeforeUse));
    }
    CHECK(strategy.factors.before == 1);
  });
}

TEST_CASE("gradients are divided by the ranks that have a loss of their own") {
  on_grid(kGrids[1], [](const comm::DeviceMesh& mesh) {
    const model::Blocks blocks = blocks_on(mesh);
    UnitPlan plan = plan_units(blocks, mesh);
    CHECK(make_strategy(plan, config_of(0, 1), mesh).factors.before == 2);
  });
}

}  // namespace zeroth::zero::split_units_test
