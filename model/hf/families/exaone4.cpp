// EXAONE 4: the outputs of attention and MLP are normalized in place of their inputs; three of four
// layers have a window, and rotary embeddings are in those alone.
#include <nlohmann/json.hpp>

#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  const bool windowed = !config.is_null("sliding_window");
  read_decoder(config, spec,
               {.max_positions = 2048,
                .kv_heads = 32,
                .norm = {.eps = 1e-5},
                .window = {.allowed = true,
                           .size = 4096,
                           .has_layer_types = true,
                           .full_every = 4,
                           .full_every_key = windowed ? "sliding_window_pattern" : nullptr}});
  if (!windowed) config.find("sliding_window_pattern");  // has no effect
  spec.norm_placement = NormPlacement::kPost;
  spec.qk_norm = QkNorm::kPerHead;
  for (LayerSpec& layer : spec.layers)
    if (windowed && layer.window == 0) layer.rope = LayerRope::kNone;
}

}  // namespace

Family exaone4_family() {
  return {.model_type = "exaone4", .read = read, .names = post_norm_names()};
}

}  // namespace zeroth::model
