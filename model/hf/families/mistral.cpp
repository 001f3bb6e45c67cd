// Mistral 7B, Nemo and Small before 3.1: Llama with a window in every layer. Ministral 8B has it in
// the layers that layer_types names.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

template <bool kHasLayerTypes>
void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 131072,
                .window = {.allowed = true, .size = 4096, .has_layer_types = kHasLayerTypes}});
  config.reject("attention_bias");
  config.reject("mlp_bias");
}

}  // namespace

Family mistral_family() {
  return {.model_type = "mistral", .read = read<false>, .lora_targets = llama_targets()};
}

Family ministral_family() {
  return {.model_type = "ministral", .read = read<true>};
}

}  // namespace zeroth::model
