#include "tests/equivalence/run_row.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "base/machine/cpu.h"
#include "engine/start.h"
#include "engine/state/model_sink.h"
#include "engine/step/save_model.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/adapter_files.h"
#include "model/hf/checkpoint_source.h"
#include "model/hf/lora_model.h"
#include "tests/equivalence/samples.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "tests/support/read_state.h"
#include "zero/dtype.h"
#include "zero/parameter_index.h"

namespace zeroth::equivalence {
namespace {

class Collected final : public engine::ModelSink {
 public:
  explicit Collected(std::map<std::string, torch::Tensor>& values) : values_(values) {}
  void begin(const std::vector<model::PlannedTensor>&, torch::Dtype) override {}
  void write(const std::string& name, const torch::Tensor& value) override {
    values_[name] = value.to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true);
  }

 private:
  std::map<std::string, torch::Tensor>& values_;
};

// A checkpoint as if it were stored in bf16: DeepSpeed's masters begin there whatever the file
// holds.
class StoredInBf16 final : public model::WeightSource {
 public:
  explicit StoredInBf16(std::unique_ptr<model::WeightSource> source) : source_(std::move(source)) {}
  void check(const std::string& name, const std::vector<int64_t>& shape) override {
    source_->check(name, shape);
  }
  void read(const model::ParamSlice& part, torch::Tensor out) override {
    source_->read(part, out);
    if (out.is_floating_point()) out.copy_(out.to(torch::kBFloat16));
  }

 private:
  std::unique_ptr<model::WeightSource> source_;
};

// A checkpoint whose values are moved by one unit in the last place, up or down at random. Zeros
// and codes stay.
class Moved final : public model::WeightSource {
 public:
  Moved(std::unique_ptr<model::WeightSource> source, uint64_t seed)
      : source_(std::move(source)), seed_(seed) {}
  void check(const std::string& name, const std::vector<int64_t>& shape) override {
    source_->check(name, shape);
  }
  void read(const model::ParamSlice& part, torch::Tensor out) override {
    source_->read(part, out);
    if (!out.is_floating_point()) return;
    const uint64_t seed = mix64(seed_ ^ fnv1a(part.name)) + static_cast<uint64_t>(part.first);
    const torch::Tensor up =
        at::randint(2, out.sizes(), at::make_generator<at::CPUGeneratorImpl>(seed),
                    torch::dtype(torch::kInt32));
    out.view(torch::kInt32).add_((2 * up - 1).mul_(out.ne(0)));
  }

 private:
  std::unique_ptr<model::WeightSource> source_;
  uint64_t seed_;
};

bool masters_rounded(engine::Engine& engine) {
  for (size_t unit = 0; unit < engine.impl().plan().units.size(); ++unit) {
    if (!engine.impl().plan().units[unit].is_held) continue;
    const torch::Tensor working = testing::shard_of(engine, unit);
    const torch::Tensor master = testing::read_master(engine.impl().optimizer(), unit);
    if (!at::equal(working, master.to(working.device(), working.scalar_type()))) return false;
  }
  return true;
}

// Whether nothing is gathered, and no memory behind the parameters of rows that shard them all.
bool only_shards(const Row& row, engine::Engine& engine) {
  if (engine.impl().store().buffers().live_elements() != 0) return false;
  const bool all_sharded =
      row.zero.stage == 3 && row.ranks > 1 && row.zero.param_persistence_threshold_elements == 0;
  const std::vector<zero::Unit>& units = engine.impl().plan().units;
  return !all_sharded || std::all_of(units.begin(), units.end(), [&](const zero::Unit& unit) {
    const bool is_adapter = trains_adapters(row.training) && unit.trainable;
    return is_adapter || unit.params.front().storage().data() == nullptr;
  });
}

Split split_of(const Row& row, const comm::DeviceMesh& mesh) {
  return {.accumulation = row.accumulation,
          .rank = mesh.coordinate(comm::MeshDim::kDp),
          .world_size = row.ranks,
          .samples = row.samples,
          .masked = row.masked,
          .reversed = row.rounding.reversed};
}

// Cuts a unit's whole buffer into its parameters.
void cut(const zero::FlatLayout& layout, const torch::Tensor& whole, Tensors& parameters) {
  for (const zero::Slot& slot : layout.slots()) {
    parameters[slot.name] = whole.narrow(0, slot.offset, slot.numel);
  }
}

// A state of the optimizer, of this rank's part of the model. Collective.
Tensors own_state(engine::Engine& engine, size_t index) {
  Tensors state;
  const std::vector<zero::Unit>& units = engine.impl().plan().units;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (!units[unit].is_trained_here()) continue;
    const torch::Tensor own =
        testing::read_state(engine.impl().optimizer(), unit, index + 1).to(engine.mesh().device());
    torch::Tensor whole = own;
    if (own.numel() < units[unit].layout.numel()) {
      whole = at::empty({units[unit].layout.numel()}, own.options());
      engine.mesh().shard_group(units[unit].num_replicas).all_gather(whole, own, "states").wait();
    }
    whole = whole.cpu();
    ZEROTH_CHECK(has_clean_padding(units[unit].layout, whole), "padding of {} has a gradient",
                 units[unit].name);
    cut(units[unit].layout, whole, state);
  }
  return state;
}

// Each state of the optimizer, whole, by the names of whole parameters. Collective.
std::vector<Tensors> whole_states(engine::Engine& engine) {
  const auto rule = optim::make_update_rule(engine.config().optimizer, engine.mesh().device());
  if (rule->is_coded()) return {};
  auto parameters = zero::global_parameters(engine.impl().plan());
  std::erase_if(parameters, [](const auto& parameter) { return !parameter.trainable; });
  const engine::SliceGatherer joiner(engine.impl().plan(), parameters, engine.mesh());
  std::vector<Tensors> states(rule->state_names().size());
  for (size_t i = 0; i < states.size(); ++i) {
    const Tensors own = own_state(engine, i);
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (!engine.impl().plan().units[parameters[p].slices.front().unit].is_held) continue;
      std::vector<torch::Tensor> slice_tensors;
      for (const auto& [unit, at] : parameters[p].slices) {
        const zero::Slot& slot = engine.impl().plan().units[unit].layout.slots()[at];
        slice_tensors.push_back(own.at(slot.name).view(slot.shape()).to(engine.mesh().device()));
      }
      states[i][parameters[p].name] = joiner.gather(p, slice_tensors).cpu().flatten();
    }
  }
  return states;
}

// The last update of a run on one rank, which holds all parameters and states.
Update last_update(engine::Engine& engine, double lr) {
  Update update;
  update.lr = lr;
  for (size_t unit = 0; unit < engine.impl().plan().units.size(); ++unit) {
    if (!engine.impl().plan().units[unit].trainable) continue;
    cut(engine.impl().plan().units[unit].layout,
        testing::read_master(engine.impl().optimizer(), unit).cpu(), update.values);
  }
  update.states = whole_states(engine);
  return update;
}

// The values of this rank's shards of frozen units.
std::vector<torch::Tensor> frozen_shards(engine::Engine& engine) {
  std::vector<torch::Tensor> shards;
  const std::vector<zero::Unit>& units = engine.impl().plan().units;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (!units[unit].trainable)
      shards.push_back(testing::shard_of(engine, unit).to(torch::kCPU, false, /*copy=*/true));
  }
  return shards;
}

RowResult train(const Row& row, const std::shared_ptr<comm::DeviceMesh>& mesh, const Split& split) {
  const auto engine = make_row_engine(row, mesh);
  const std::vector<torch::Tensor> base = frozen_shards(*engine);
  SampleLoader loader(split);
  const bool fp32 = row.precision == configs::Precision::kFp32;
  RowResult result;
  for (int64_t step = 0; step < row.steps; ++step) {
    const engine::StepStats stats = engine->train_batch(loader);
    result.losses.push_back(stats.loss);
    result.grad_norms.push_back(stats.grad_norm);
    result.rates.push_back(stats.lr);
    // A look at the masters brings waiting updates forward: the others wait for their use.
    if (step % 2 == 1) result.masters_rounded = result.masters_rounded && masters_rounded(*engine);
    result.only_shards = result.only_shards && only_shards(row, *engine);
    result.skipped += stats.skipped;
    if (fp32 && mesh_shape_of(row).ranks() == 1)
      result.history.push_back(last_update(*engine, stats.lr));
  }
  if (fp32) result.states = whole_states(*engine);
  result.peak_live_elements = engine->impl().store().buffers().peak_live_elements();
  result.persistent_bytes = engine->impl().store().persistent_bytes();
  const std::vector<torch::Tensor> base_now = frozen_shards(*engine);
  result.base_unchanged = std::ranges::equal(
      base, base_now, [](const auto& a, const auto& b) { return at::equal(a, b); });
  Collected sink(result.parameters);
  engine->save_model(sink);
  return result;
}

// AdamW's first moment after one update is a known part of the gradient, whatever decays.
Tensors step_gradients(const Row& row, const std::shared_ptr<comm::DeviceMesh>& mesh,
                       const Split& split) {
  Row first = row;
  if (!trains_adapters(row.training)) first.training = Training::kAdamW;
  first.clipping = 0;
  const auto engine = make_row_engine(first, mesh);
  SampleLoader loader(split);
  engine->train_batch(loader);
  Tensors gradients = whole_states(*engine).front();
  const double part = 1 - engine->config().optimizer.betas[0];
  for (auto& [name, value] : gradients) value = value.to(torch::kDouble) / part;
  return gradients;
}

void merge(RowResult& all, RowResult rank) {
  all.ranks_agree =
      all.ranks_agree && rank.ranks_agree &&
      (all.losses.empty() || (all.losses == rank.losses && all.grad_norms == rank.grad_norms));
  all.masters_rounded = all.masters_rounded && rank.masters_rounded;
  all.only_shards = all.only_shards && rank.only_shards;
  all.base_unchanged = all.base_unchanged && rank.base_unchanged;
  all.skipped += rank.skipped;
  all.peak_live_elements = std::max(all.peak_live_elements, rank.peak_live_elements);
  all.persistent_bytes = std::max(all.persistent_bytes, rank.persistent_bytes);
  all.losses = std::move(rank.losses);
  all.grad_norms = std::move(rank.grad_norms);
  all.rates = std::move(rank.rates);
  all.parameters.merge(rank.parameters);
  all.states.resize(rank.states.size());
  for (size_t i = 0; i < rank.states.size(); ++i) all.states[i].merge(rank.states[i]);
  all.history = std::move(rank.history);
}

void on_ranks(const Row& row, testing::Transport transport,
              const std::function<void(std::shared_ptr<comm::DeviceMesh>)>& fn) {
  std::optional<MatmulBackendGuard> forced;
  if (!row.rounding.product.empty()) forced.emplace(row.rounding.product);
  const comm::MeshShape grid = mesh_shape_of(row);
  testing::run_ranks(grid.ranks(), fn,
                     {.transport = transport,
                      .grid = grid,
                      .nodes = testing::on_machines(grid.ranks(), row.machines)});
}

size_t bits_of(const Tensors& values) {
  size_t bits = 0;
  for (const auto& [name, value] : values) {
    const torch::Tensor whole = value.contiguous();
    const std::string_view bytes(static_cast<const char*>(whole.data_ptr()), whole.nbytes());
    bits = bits * 31 + std::hash<std::string_view>()(bytes);
  }
  return bits;
}

// For tools/compare_builds: a row's losses, norms and parameters to the bit.
void report(const Row& row, const RowResult& result, const std::filesystem::path& file) {
  std::ofstream(file, std::ios::app) << fmt::format(
      "{} | losses {:a} | norms {:a} | parameters {:x}\n", name_of(row),
      fmt::join(result.losses, " "), fmt::join(result.grad_norms, " "), bits_of(result.parameters));
}

}  // namespace

bool has_clean_padding(const zero::FlatLayout& layout, const torch::Tensor& whole) {
  const torch::Tensor padding = whole.clone();
  for (const zero::Slot& slot : layout.slots()) {
    padding.narrow(0, slot.offset, slot.numel).zero_();
  }
  return padding.eq(0).all().item<bool>();
}

std::filesystem::path checkpoint_of(const Row& row) {
  return std::filesystem::path(ZEROTH_SOURCE_DIR "/tests/model/fixtures") / row.model;
}

std::unique_ptr<model::WeightSource> weights_of(const Row& row, const model::ModelSpec& spec) {
  auto weights = model::open_weights(checkpoint_of(row), spec, /*seed=*/0,
                                     zero::working_dtype(config_of(row)));
  if (row.rounding.moved_weights != 0)
    return std::make_unique<Moved>(std::move(weights), row.rounding.moved_weights);
  if (row.precision != configs::Precision::kBf16) return weights;
  return std::make_unique<StoredInBf16>(std::move(weights));
}

namespace {

// Adds the row's adapters to the blocks: those of the fixtures, or for a model without any random
// ones on every product.
std::unique_ptr<model::WeightSource> add_adapters(const Row& row, const model::ModelSpec& spec,
                                                  const model::Blocks& blocks) {
  const auto directory =
      std::filesystem::path(ZEROTH_SOURCE_DIR "/tests/equivalence/fixtures/adapters") / row.model;
  const bool has_files = model::has_adapter(directory);
  configs::LoraConfig lora = {.r = 4, .init = configs::LoraConfig::Init::kRandom};
  lora.target_modules.pattern = "all-linear";
  if (has_files) lora = model::read_adapter_config(directory).lora;
  model::LoraPlan plan = model::plan_lora(spec, lora);
  plan.dropout = row.dropout;
  model::add_adapters(blocks, plan);
  return model::make_lora_source(plan, weights_of(row, spec),
                                 has_files ? model::open_adapter(directory, spec, plan) : nullptr,
                                 /*seed=*/0);
}

}  // namespace

std::unique_ptr<engine::Engine> make_row_engine(const Row& row,
                                                std::shared_ptr<comm::DeviceMesh> mesh) {
  model::ModelSpec spec = model::read_model_spec(checkpoint_of(row));
  model::override_dropout(spec, row.dropout);
  if (row.training >= Training::kQlora)
    spec.quantization = {.double_quant = row.training == Training::kQloraDouble};
  const configs::Config config = config_of(row);
  model::Blocks blocks = model::build_blocks(spec, engine::tensor_parallel_group(*mesh, config));
  engine::InitOptions options;
  if (trains_adapters(row.training)) {
    options.weights = add_adapters(row, spec, blocks);
    options.saves_frozen = false;
  } else {
    options.weights = weights_of(row, spec);
  }
  return engine::initialize(std::move(blocks), config, std::move(mesh), options);
}

RowResult run_row(const Row& row, testing::Transport transport) {
  RowResult all;
  std::mutex mutex;
  on_ranks(row, transport, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    RowResult own = train(row, mesh, split_of(row, *mesh));
    const std::lock_guard lock(mutex);
    merge(all, std::move(own));
  });
  if (const char* file = std::getenv("ZEROTH_TEST_ROWS")) report(row, all, file);
  return all;
}

RowResult run_row(const Row& row, const Split& split) {
  RowResult result;
  testing::run_ranks(
      1, [&](std::shared_ptr<comm::DeviceMesh> mesh) { result = train(row, mesh, split); });
  return result;
}

Tensors first_gradients(const Row& row) {
  Tensors gradients;
  std::mutex mutex;
  on_ranks(row, testing::Transport::kSharedMemory, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    Tensors own = step_gradients(row, mesh, split_of(row, *mesh));
    const std::lock_guard lock(mutex);
    gradients.merge(own);
  });
  return gradients;
}

Tensors first_gradients(const Row& row, const Split& split) {
  Tensors gradients;
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    gradients = step_gradients(row, mesh, split);
  });
  return gradients;
}

}  // namespace zeroth::equivalence
