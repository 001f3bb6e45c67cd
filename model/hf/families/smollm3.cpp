// SmolLM3: Llama of which every fourth layer has no rotary embeddings.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 32768, .kv_heads = 4, .tied = true, .rope = {.theta = 2000000}});
  read_biases(config, spec);
  read_rope_layers(config, spec);
}

}  // namespace

Family smollm3_family() {
  return {.model_type = "smollm3", .read = read, .padding_token = 128004};
}

}  // namespace zeroth::model
