#include "base/error.h"
#include "comm/cpu_collectives.h"
#include "engine/engine.h"
#include "engine/memory/memory_check.h"
#include "engine/state/initial_values.h"
#include "engine/train_engine.h"
#include "engine/verify/parameter_order.h"
#include "engine/verify/stop_agreement.h"
#include "engine/verify/verify_cpu_isa_matches.h"
#include "engine/verify/verify_sharding_matches.h"

namespace zeroth::engine {
namespace {

// Checks the memory on every rank before any rank allocates.
void require_memory_on_all(const model::Blocks& blocks, const configs::Config& config,
                           const comm::DeviceMesh& mesh, const InitOptions& init) {
  const EstimateOptions options{.shape = mesh.layout().shape(),
                                .device = mesh.device().type(),
                                .trains = init.trains,
                                .saves_beside = init.saves_beside_training};
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
  if (shape.ranks_along({MeshDim::kDp, MeshDim::kTp}) != shape.ranks())
    throw Error("mesh {} is not supported: an engine supports the dims data and tensor only",
                shape.str());
  const int64_t size = config.tensor_parallel.size;
  if (size == 1 || size == shape[MeshDim::kTp]) return;
  throw Error(
      "tensor_parallel.autotp_size: {}, but the mesh is {}. Call engine::arrange first, as "
      "zeroth::start does",
      size, shape.str());
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

}  // namespace

std::unique_ptr<Engine> initialize(model::Blocks blocks, const configs::Config& config,
                                   std::shared_ptr<comm::DeviceMesh> mesh,
                                   const InitOptions& options) {
  if (blocks.size() < 2) throw Error("a model needs at least two blocks, {} given", blocks.size());
  check_mesh_dims(mesh->layout().shape(), config);
  verify_cpu_isa_matches({}, *mesh);
  verify_sharding_matches(blocks, *mesh);
  if (options.checks_memory) require_memory_on_all(blocks, config, *mesh, options);
  if (config.comms_logger.enabled) mesh->log_collectives(config.comms_logger);
  std::shared_ptr<model::WeightSource> weights = options.weights;
  if (weights == nullptr && !options.awaits_checkpoint) {
    if (has_meta_parameters(blocks))
      throw Error("the blocks' parameters have no values and no weights were given");
    weights = values_of_blocks(blocks, *mesh);
  }
  broadcast_buffers(blocks, *mesh);
  auto engine = std::make_unique<TrainEngine>(std::move(blocks), config, std::move(mesh),
                                              /*link=*/nullptr, options.trains);
  engine->set_saved_model(options.saved_model, options.saves_beside_training);
  if (options.awaits_checkpoint) {
    engine->await_checkpoint();
    return engine;
  }
  StopAgreement end(engine->mesh(), options.stop_requested);
  const auto should_stop = [&] { return options.stop_requested && end.stop_agreed(); };
  if (!load_values(engine->plan(), *weights, engine->store(), engine->optimizer(), should_stop,
                   options.on_read)) {
    throw StopRequested();
  }
  return engine;
}

}  // namespace zeroth::engine
