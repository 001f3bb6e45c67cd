// Nemotron and Minitron: LayerNorm whose weights are stored around 0, rotary embeddings of half of
// each head, and a plain MLP with squared ReLU.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 4096,
                .norm = {.kind = NormKind::kLayer, .eps = 1e-5, .bias = true, .weight_offset = 1},
                .norm_eps_key = "norm_eps",
                .activation = "relu2",
                .rope = {.is_partial = true, .partial_factor = 0.5}});
  spec.gated_mlp = false;
  read_biases(config, spec);
  spec.initializer_range = 0.0134;
}

}  // namespace

Family nemotron_family() {
  return {.model_type = "nemotron", .read = read};
}

}  // namespace zeroth::model
