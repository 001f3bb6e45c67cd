// SmolLM3: Llama of which every fourth layer has no rotary embeddings.
#include <nlohmann/json.hpp>

#include "base/json/json.h"
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

// Reads no_rope_layers, in which 1 means that the layer has them.
void read_rope_layers(ConfigReader& config, ModelSpec& spec) {
  constexpr const char* kKey = "no_rope_layers";
  const int64_t interval = config.size("no_rope_layer_interval", 4);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    if ((layer + 1) % std::max<int64_t>(interval, 1) == 0)
      spec.layers[layer].rope = LayerRope::kNone;
  }
  const nlohmann::json* const layers = config.find(kKey);
  if (layers == nullptr) return;
  if (!layers->is_array() || std::ssize(*layers) != spec.num_layers)
    return config.add_error(kKey, "does not have one entry for each of the {} layers",
                            spec.num_layers);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const nlohmann::json& entry = (*layers)[layer];
    if (entry != 0 && entry != 1)
      config.add_error(kKey, "has {}; supported are 0 and 1", quoted(entry));
    spec.layers[layer].rope = entry == 1 ? LayerRope::kGlobal : LayerRope::kNone;
  }
}

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
