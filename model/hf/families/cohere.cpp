// Command R: attention and MLP side by side after one LayerNorm without bias, interleaved rotary
// embeddings, and a factor of the logits. Command R7B has a window in three of four layers, and
// rotary embeddings in those alone.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

// Refuses what Cohere's own keys can say and transformers, which does not read them, cannot build.
void check_original_keys(ConfigReader& config) {
  for (const char* key : {"use_parallel_block", "use_gated_activation", "use_embedding_sharing"})
    config.require(key, true);
  config.reject("use_parallel_embedding");
  config.require("rotary_pct", 1.0);
  config.require("position_embedding_type", "rope_gptj");
  config.require("order_of_interleaved_layers", "local_attn_first");
}

void read_both(ConfigReader& config, ModelSpec& spec, DecoderKeys keys) {
  check_original_keys(config);
  keys.max_positions = 8192;
  keys.norm = {.kind = NormKind::kLayer, .eps = 1e-5};
  keys.norm_eps_key = "layer_norm_eps";
  keys.tied = true;
  keys.rope.interleaved = true;
  read_decoder(config, spec, keys);
  spec.parallel_residual = ParallelResidual::kOneNorm;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  spec.logits_multiplier = config.number("logit_scale", 0.0625);
}

void read_cohere(ConfigReader& config, ModelSpec& spec) {
  read_both(config, spec, {.rope = {.theta = 500000}});
  if (config.flag("use_qk_norm", false)) spec.qk_norm = QkNorm::kPerHeadOwnWeight;
}

void read_cohere2(ConfigReader& config, ModelSpec& spec) {
  read_both(config, spec,
            {.window = {.allowed = true,
                        .size = 4096,
                        .has_layer_types = true,
                        .full_every = 4,
                        .full_every_key = "sliding_window_pattern"}});
  for (LayerSpec& layer : spec.layers)
    if (layer.window == 0) layer.rope = LayerRope::kNone;
}

}  // namespace

Family cohere_family() {
  return {.model_type = "cohere", .read = read_cohere, .padding_token = 0};
}

Family cohere2_family() {
  return {.model_type = "cohere2", .read = read_cohere2, .padding_token = 0};
}

}  // namespace zeroth::model
