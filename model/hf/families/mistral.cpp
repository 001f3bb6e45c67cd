// Mistral 7B, Nemo and Small before 3.1: Llama with a window in every layer. Ministral 8B has it in
// the layers that layer_types names. Ministral 3 scales queries at later positions.
#include <nlohmann/json.hpp>

#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

template <bool kHasLayerTypes>
void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 131072,
                .kv_heads = 8,
                .window = {.allowed = true, .size = 4096, .has_layer_types = kHasLayerTypes}});
  config.reject("attention_bias");
  config.reject("mlp_bias");
}

constexpr const char* kYarn = R"({
    "type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 16384, "mscale_all_dim": 1.0, "mscale": 1.0})";

void read_ministral3(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 262144,
                .kv_heads = 8,
                .head_dim = 128,
                .norm = {.eps = 1e-5},
                .rope = {.parameters = kYarn},
                .window = {.allowed = true}});
  config.reject("attention_bias");
  config.reject("mlp_bias");
  // Where read_rope() finds them.
  const nlohmann::json* rope = config.find("rope_scaling");
  const bool new_key = rope == nullptr || rope->empty();
  if (new_key) rope = config.find("rope_parameters");
  spec.query_scale = {.scale = 0.1, .interval = spec.rope.original_max_positions};  // kYarn's
  if (rope != nullptr && rope->is_object()) {
    ConfigReader own(*rope, new_key ? "rope_parameters." : "rope_scaling.");
    spec.query_scale->scale = own.number("llama_4_scaling_beta");
    if (spec.query_scale->interval == 0)
      spec.query_scale->interval = own.size("original_max_position_embeddings");
    config.add(own);
  }
  for (LayerSpec& layer : spec.layers) layer.scales_queries = true;
}

}  // namespace

Family mistral_family() {
  return {.model_type = "mistral", .read = read<false>, .lora_targets = llama_targets()};
}

Family ministral_family() {
  return {.model_type = "ministral", .read = read<true>};
}

Family ministral3_family() {
  return {.model_type = "ministral3", .read = read_ministral3, .padding_token = 11};
}

}  // namespace zeroth::model
