// Granite 3: Llama with factors of the embedding, the scores, the residual stream and the logits.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.max_positions = 2048});
  read_biases(config, spec);
  spec.embedding_multiplier = config.number("embedding_multiplier", 1);
  const double score_scale = config.number("attention_multiplier", 1);
  for (LayerSpec& layer : spec.layers) layer.score_scale = score_scale;
  spec.residual_multiplier = config.number("residual_multiplier", 1);
  spec.logits_multiplier = 1 / config.positive("logits_scaling", 1);
}

}  // namespace

Family granite_family() {
  return {.model_type = "granite", .read = read};
}

}  // namespace zeroth::model
