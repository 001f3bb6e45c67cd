#include "model/blocks/build.h"

#include <cstdint>
#include <memory>

#include "model/blocks/embedding.h"
#include "model/blocks/head.h"
#include "model/blocks/transformer_layer.h"

namespace zeroth::model {

Blocks build_blocks(const ModelSpec& spec) {
  const auto tables = std::make_shared<SequenceTables>(spec);
  const auto embedding = std::make_shared<Embedding>(spec);
  Blocks blocks = {embedding};
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    blocks.push_back(std::make_shared<TransformerLayer>(spec, layer, tables));
  }
  blocks.push_back(std::make_shared<Head>(spec, spec.tied ? embedding->weight() : torch::Tensor()));
  return blocks;
}

}  // namespace zeroth::model
