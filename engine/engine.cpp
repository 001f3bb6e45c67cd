#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "comm/cpu_collectives.h"
#include "engine/engine_impl.h"
#include "engine/memory/memory_check.h"
#include "engine/memory/memory_estimate.h"
#include "engine/step/save_model.h"
#include "engine/verify/parameter_faults.h"
#include "engine/verify/stop_agreement.h"
#include "engine/verify/verify_ranks_match.h"
#include "model/hf/output_directory.h"
#include "model/hf/safetensors_writer.h"
#include "zero/dtype.h"

namespace zeroth::engine {
namespace {

// Checks the memory on every rank before any rank allocates.
void require_memory_on_all(const model::Blocks& blocks, const configs::Config& config,
                           const comm::DeviceMesh& mesh, const InitOptions& init) {
  const EstimateOptions options{.shape = mesh.layout().shape(),
                                .device = mesh.device().type(),
                                .trains = init.trains,
                                .saves_frozen = init.saves_frozen,
                                .saves_beside = init.saves_beside_training,
                                .block_times = init.block_times};
  std::string refusal;
  try {
    require_memory(run_memory(blocks, config, options, mesh.local_size()));
  } catch (const Error& error) {
    refusal = error.what();
  }
  const int64_t refusing_rank = refusal.empty() ? kNone : mesh.rank();
  const int64_t rank = comm::min_over_ranks(refusing_rank, "refusals of the run", mesh);
  if (rank == kNone) return;
  if (!refusal.empty()) throw Error("{}", refusal);
  throw Error("rank {} refuses this run; its own message says why", rank);
}

void check_mesh_dims(const comm::MeshShape& shape, const configs::Config& config) {
  using comm::MeshDim;
  if (shape.ranks_along({MeshDim::kPp, MeshDim::kDp, MeshDim::kTp}) != shape.ranks())
    throw Error("mesh {} is not supported: an engine supports the dims pipe, data and tensor only",
                shape.str());
  if (config.pipeline.stages != shape[MeshDim::kPp]) {
    throw Error(
        "pipeline.stages: {}, but the mesh is {}. Call engine::arrange first, as zeroth::start "
        "does",
        config.pipeline.stages, shape.str());
  }
  const int64_t size = config.tensor_parallel.size;
  if (size == 1 || size == shape[MeshDim::kTp]) return;
  throw Error(
      "tensor_parallel.autotp_size: {}, but the mesh is {}. Call engine::arrange first, as "
      "zeroth::start does",
      size, shape.str());
}

bool has_frozen_parameters(const model::Blocks& blocks) {
  return std::ranges::any_of(blocks, [](const auto& block) {
    return std::ranges::any_of(block->parameters(), [](const torch::Tensor& parameter) {
      return !parameter.requires_grad();
    });
  });
}

// Broadcasts buffers. They keep their dtype; like parameters they get the values of the first rank
// that holds the same ones.
void broadcast_buffers(const model::Blocks& blocks, comm::DeviceMesh& mesh) {
  const bool shares = mesh.layout().shape()[comm::MeshDim::kTp] > 1;
  for (const auto& block : blocks) {
    const model::Splits splits = shares ? block->splits().value() : model::Splits();
    for (const auto& item : block->named_buffers()) {
      torch::Tensor buffer = item.value();
      if (buffer.is_meta()) throw Error("buffer {}.{} has no values", block->label(), item.key());
      const torch::Tensor value = buffer.to(mesh.device()).contiguous();
      const auto split = splits.find(item.key());
      comm::Group& group =
          split == splits.end() ? mesh.world() : mesh.shard_group(split->second.num_replicas);
      group.broadcast(value, /*root=*/0, "buffers of " + block->label()).wait();
      buffer.set_data(value);
    }
  }
}

// SafetensorsSink writes DIR/model.safetensors; commit() makes the complete directory visible.
// Throws an Error if the directory exists and is not empty, or a value is not finite.
class SafetensorsSink final : public ModelSink {
 public:
  explicit SafetensorsSink(std::filesystem::path dir) : dir_(std::move(dir)) {}

  void begin(const std::vector<model::PlannedTensor>& parameters, torch::Dtype dtype) override {
    ZEROTH_CHECK(!parameters.empty(), "a model without parameters is saved to {}", dir_.string());
    num_parameters_ = std::ssize(parameters);
    model::OutputDirectory::cleanup_leftovers(dir_);
    model::OutputDirectory::check(dir_, /*overwrite=*/false);
    directory_.emplace(dir_, /*overwrite=*/false);
    writer_.emplace(directory_->path() / "model.safetensors", dtype, parameters);
  }

  void write(const std::string& name, const torch::Tensor& value) override {
    model::require_finite(dir_, name, value);
    writer_->write(name, value);
  }

  void commit() {
    const int64_t written = writer_->finish();
    ZEROTH_CHECK(written == num_parameters_, "{} of {} parameters are written", written,
                 num_parameters_);
    writer_.reset();
    directory_->commit();
  }

 private:
  std::filesystem::path dir_;
  std::optional<model::OutputDirectory> directory_;
  std::optional<model::SafetensorsWriter> writer_;
  int64_t num_parameters_ = 0;
};

}  // namespace

Engine::Engine(model::Blocks blocks, const configs::Config& config,
               std::shared_ptr<comm::DeviceMesh> mesh, const InitOptions& options,
               std::shared_ptr<device::HostLink> link)
    : impl_(std::make_unique<Impl>(std::move(blocks), config, std::move(mesh), options,
                                   std::move(link))) {}

Engine::~Engine() = default;

StepStats Engine::train_batch(DataLoader& data) {
  return impl_->train_batch(data);
}

void Engine::trace_next_step() {
  impl_->trace_next_step();
}

const StepDecision& Engine::decision() const {
  return impl_->decision_;
}

EvalStats Engine::eval_batch(DataLoader& data, int64_t micro_batches) {
  return impl_->eval_batch(data, micro_batches);
}

void Engine::evaluated(double loss) {
  impl_->lr_.record_evaluation(loss);
}

void Engine::save_model(ModelSink& sink, SavedValues values) {
  const torch::Dtype dtype = zero::working_dtype(config());
  const bool masters = values == SavedValues::kMasters && dtype != torch::kFloat;
  if (!std::ranges::all_of(impl_->plan_.units, &zero::Unit::is_saved)) {
    return save_trained(impl_->plan_, impl_->optimizer(), masters ? torch::kFloat : dtype, mesh(),
                        sink);
  }
  engine::save_model(impl_->runner_, impl_->plan_, masters ? &impl_->optimizer() : nullptr, dtype,
                     mesh(), sink);
}

void Engine::save_model(const std::filesystem::path& dir) {
  SafetensorsSink sink(dir);
  save_model(sink);
  if (mesh().rank() == 0) sink.commit();
  comm::barrier(mesh());
}

void Engine::save_states(StateSink& sink) {
  engine::save_states(impl_->sharded_state(), sink);
}

RunCounters Engine::counters() const {
  return impl_->counters();
}

SavedCheckpoint Engine::save_checkpoint(const std::filesystem::path& dir,
                                        const CheckpointRequest& request) {
  return impl_->checkpointer_.save(dir, counters(), request);
}

std::optional<SavedCheckpoint> Engine::start_checkpoint(const std::filesystem::path& dir,
                                                        const CheckpointRequest& request) {
  return impl_->checkpointer_.start(dir, counters(), request);
}

SavedCheckpoint Engine::finish_checkpoint() {
  return impl_->checkpointer_.finish();
}

bool Engine::has_pending_checkpoint() const {
  return impl_->checkpointer_.is_saving();
}

std::vector<std::string> Engine::keep_checkpoints(const std::filesystem::path& dir, int64_t newest,
                                                  const std::set<int64_t>& steps) {
  return impl_->checkpointer_.keep(dir, newest, steps);
}

std::optional<LoadedCheckpoint> Engine::load_checkpoint(const std::filesystem::path& path,
                                                        const LoadOptions& options) {
  const auto loaded = impl_->checkpointer_.load(path, options);
  if (!loaded) return std::nullopt;
  impl_->has_values_ = true;
  if (options.parts != LoadedParts::kWeights) impl_->take_over(loaded->counters);
  return loaded->checkpoint;
}

void Engine::load_states(StateSource& source, const RunCounters& counters) {
  impl_->checkpointer_.finish_pending();
  engine::load_states(impl_->sharded_state(), source);
  impl_->has_values_ = true;
  impl_->take_over(counters);
}

const configs::Config& Engine::config() const {
  return impl_->config_;
}

comm::DeviceMesh& Engine::mesh() const {
  return *impl_->mesh_;
}

zero::MemoryPlan Engine::memory() const {
  return plan_memory(impl_->plan_, config(),
                     {.device = mesh().device().type(), .saves_beside = impl_->saves_beside_},
                     impl_->partition_);
}

int64_t Engine::num_parameters() const {
  return count_parameters(impl_->plan_);
}

DecayCounts Engine::decay_counts() const {
  return count_decay(impl_->plan_, config().optimizer);
}

std::vector<std::string> Engine::notes() const {
  const SavedInputs* const inputs = impl_->saved_inputs_.get();
  return impl_->strategy_.shard_stores.notes(inputs != nullptr ? inputs->notes()
                                                               : std::vector<std::string>());
}

std::string Engine::current_operation() const {
  return impl_->current_operation();
}

std::string Engine::strategy() const {
  return impl_->strategy_.description;
}

std::optional<configs::OffloadOptimizerConfig::UpdateDevice> Engine::measured_step() const {
  return impl_->strategy_.shard_stores.measured_step;
}

std::unique_ptr<Engine> initialize(model::Blocks blocks, const configs::Config& config,
                                   std::shared_ptr<comm::DeviceMesh> mesh,
                                   const InitOptions& options) {
  if (blocks.size() < 2) throw Error("a model needs at least two blocks, {} given", blocks.size());
  check_mesh_dims(mesh->layout().shape(), config);
  verify_cpu_isa_matches({}, *mesh);
  verify_sharding_matches(blocks, *mesh);
  verify_partition_matches(
      partition_blocks(blocks, config.pipeline, options.block_times).block_pp_ranks(), *mesh);
  if (config.lora.enabled && !has_frozen_parameters(blocks)) {
    throw Error(
        "section lora: no parameter of the blocks is frozen, so that all would be trained; "
        "model::add_adapters (model/hf/lora_model.h) freezes blocks and adds adapters to them");
  }
  if (options.awaits_checkpoint && !options.saves_frozen && options.weights == nullptr)
    throw Error("no weights were given for frozen parameters, which no checkpoint holds");
  if (options.checks_memory) require_memory_on_all(blocks, config, *mesh, options);
  if (config.comms_logger.enabled) mesh->log_collectives(config.comms_logger);
  std::shared_ptr<model::WeightSource> weights = options.weights;
  if (weights == nullptr && !options.awaits_checkpoint) {
    if (has_meta_parameters(blocks))
      throw Error("the blocks' parameters have no values and no weights were given");
    weights = values_of_blocks(blocks, *mesh);
  }
  broadcast_buffers(blocks, *mesh);
  auto engine = std::make_unique<Engine>(std::move(blocks), config, std::move(mesh), options);
  if (options.awaits_checkpoint && options.saves_frozen) return engine;
  StopAgreement end(engine->mesh(), options.stop_requested);
  const auto should_stop = [&] { return options.stop_requested && end.stop_agreed(); };
  const LoadedUnits units =
      options.awaits_checkpoint ? LoadedUnits::kWithoutSaved : LoadedUnits::kAll;
  if (!load_values(engine->impl().sharded_state(), *weights, units, should_stop, options.on_read)) {
    throw StopRequested();
  }
  return engine;
}

}  // namespace zeroth::engine
