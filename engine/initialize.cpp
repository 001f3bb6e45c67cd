#include "base/error.h"
#include "comm/agreement.h"
#include "engine/end_agreement.h"
#include "engine/engine.h"
#include "engine/initial_values.h"
#include "engine/memory_check.h"
#include "engine/parameter_order.h"
#include "engine/same_level.h"
#include "engine/same_split.h"
#include "engine/train_engine.h"

namespace zeroth::engine {
namespace {

// No rank takes anything before each of them has looked.
void require_room(const model::Blocks& blocks, const configs::Config& config,
                  const comm::Mesh& mesh, const InitOptions& init) {
  const OutlineOptions options{.shape = mesh.grid().shape(),
                               .device = mesh.device().type(),
                               .trains = init.trains,
                               .saves_beside = init.saves_beside_training};
  std::string refusal;
  try {
    require_memory(run_memory(blocks, config, options, mesh.local_size()));
  } catch (const Error& error) {
    refusal = error.what();
  }
  const int64_t refused = refusal.empty() ? kNone : mesh.rank();
  const int64_t rank = comm::least_over_ranks(refused, "refusals of the run", mesh);
  if (rank == kNone) return;
  if (!refusal.empty()) throw Error("{}", refusal);
  throw Error("rank {} refuses this run; its own message says why", rank);
}

void require_axes(const comm::GridShape& shape, const configs::Config& config) {
  using comm::Axis;
  if (shape.ranks_along({Axis::kData, Axis::kTensor}) != shape.ranks())
    throw Error("an engine trains on ranks of axes data and tensor, not on {}", shape.str());
  const int64_t size = config.tensor_parallel.size;
  if (size == 1 || size == shape[Axis::kTensor]) return;
  throw Error(
      "tensor_parallel.autotp_size: {}, but the ranks stand as {}: engine::arrange gives them "
      "their places, as zeroth::start does",
      size, shape.str());
}

// Buffers keep their dtype; like parameters they start from the values of the first rank that holds
// the same.
void settle_buffers(const model::Blocks& blocks, comm::Mesh& mesh) {
  const bool shares = mesh.grid().shape()[comm::Axis::kTensor] > 1;
  for (const auto& block : blocks) {
    const model::Splits splits = shares ? block->splits().value() : model::Splits();
    for (const auto& item : block->named_buffers()) {
      torch::Tensor buffer = item.value();
      if (buffer.is_meta()) throw Error("buffer {}.{} has no values", block->label(), item.key());
      const torch::Tensor value = buffer.to(mesh.device()).contiguous();
      const auto split = splits.find(item.key());
      comm::Group& holders =
          split == splits.end() ? mesh.world() : mesh.sharing(split->second.copies);
      holders.broadcast(value, /*root=*/0, "buffers of " + block->label()).wait();
      buffer.set_data(value);
    }
  }
}

}  // namespace

std::unique_ptr<Engine> initialize(model::Blocks blocks, const configs::Config& config,
                                   std::shared_ptr<comm::Mesh> mesh, const InitOptions& options) {
  if (blocks.size() < 2) throw Error("a model needs at least two blocks, {} given", blocks.size());
  require_axes(mesh->grid().shape(), config);
  require_same_level({}, *mesh);
  require_same_split(blocks, *mesh);
  if (options.checks_memory) require_room(blocks, config, *mesh, options);
  if (config.comms_logger.enabled) mesh->log_collectives(config.comms_logger);
  std::shared_ptr<model::WeightSource> weights = options.weights;
  if (weights == nullptr && !options.awaits_checkpoint) {
    if (lacks_values(blocks))
      throw Error("the blocks' parameters have no values and no weights were given");
    weights = values_of_blocks(blocks, *mesh);
  }
  settle_buffers(blocks, *mesh);
  auto engine = std::make_unique<TrainEngine>(std::move(blocks), config, std::move(mesh),
                                              /*link=*/nullptr, options.trains);
  engine->save_as(options.saved_model, options.saves_beside_training);
  if (options.awaits_checkpoint) {
    engine->await_checkpoint();
    return engine;
  }
  EndAgreement end(engine->mesh(), options.wants_end);
  const auto ends = [&] { return options.wants_end && end.reached(); };
  if (!load_values(engine->plan(), *weights, engine->store(), engine->optimizer(), ends,
                   options.on_read)) {
    throw EndWanted();
  }
  return engine;
}

}  // namespace zeroth::engine
