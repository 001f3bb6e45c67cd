#include "base/error.h"
#include "engine/engine.h"
#include "engine/initial_values.h"
#include "engine/train_engine.h"

namespace zeroth::engine {
namespace {

// Buffers keep their dtype; like parameters they start from rank 0's values.
void settle_buffers(const model::Blocks& blocks, comm::Mesh& mesh) {
  for (const auto& block : blocks) {
    for (const auto& item : block->named_buffers()) {
      torch::Tensor buffer = item.value();
      if (buffer.is_meta()) throw Error("buffer {}.{} has no values", block->label(), item.key());
      const torch::Tensor value = buffer.to(mesh.device()).contiguous();
      mesh.data().broadcast(value, /*root=*/0, "buffers of " + block->label()).wait();
      buffer.set_data(value);
    }
  }
}

}  // namespace

std::unique_ptr<Engine> initialize(model::Blocks blocks, const configs::Config& config,
                                   std::shared_ptr<comm::Mesh> mesh, const InitOptions& options) {
  if (blocks.size() < 2) throw Error("a model needs at least two blocks, {} given", blocks.size());
  if (config.comms_logger.enabled) mesh->log_collectives(config.comms_logger);
  std::shared_ptr<model::WeightSource> weights = options.weights;
  if (weights == nullptr) {
    if (lacks_values(blocks))
      throw Error("the blocks' parameters have no values and no weights were given");
    weights = values_of_blocks(blocks, *mesh);
  }
  settle_buffers(blocks, *mesh);
  auto engine = std::make_unique<TrainEngine>(std::move(blocks), config, std::move(mesh),
                                              /*link=*/nullptr, options.trains);
  load_values(engine->plan(), *weights, engine->params(), engine->optimizer());
  return engine;
}

}  // namespace zeroth::engine
