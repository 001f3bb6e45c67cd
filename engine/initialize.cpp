#include "base/error.h"
#include "engine/engine.h"
#include "engine/initial_values.h"
#include "engine/train_engine.h"

namespace zeroth::engine {
namespace {

void move_buffers(const model::Blocks& blocks, torch::Device device) {
  if (device.is_cpu()) return;
  for (const auto& block : blocks) {
    for (torch::Tensor& buffer : block->buffers()) buffer.set_data(buffer.to(device));
  }
}

}  // namespace

std::unique_ptr<Engine> initialize(model::Blocks blocks, const configs::Config& config,
                                   std::shared_ptr<comm::Mesh> mesh, const InitOptions& options) {
  if (blocks.size() < 2) throw Error("a model needs at least two blocks, {} given", blocks.size());
  std::shared_ptr<model::WeightSource> weights = options.weights;
  if (weights == nullptr) {
    if (lacks_values(blocks))
      throw Error("the blocks' parameters have no values and no weights were given");
    weights = values_of_blocks(blocks, *mesh);
  }
  move_buffers(blocks, mesh->device());
  auto engine = std::make_unique<TrainEngine>(std::move(blocks), config, std::move(mesh));
  load_values(engine->plan(), *weights, engine->params(), engine->optimizer());
  return engine;
}

}  // namespace zeroth::engine
