// Llama 4, the text model: experts in some layers, attention within chunks, and every fourth layer
// without rotary embeddings.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"layers.#.mlp.gate.", "layers.#.feed_forward.gate_proj."},
    {"layers.#.mlp.up.", "layers.#.feed_forward.up_proj."},
    {"layers.#.mlp.down.", "layers.#.feed_forward.down_proj."},
    {"layers.#.mlp.router.", "layers.#.feed_forward.router."},
    {"layers.#.mlp.experts.gate_up", "layers.#.feed_forward.experts.gate_up_proj"},
    {"layers.#.mlp.experts.down", "layers.#.feed_forward.experts.down_proj"},
    {"layers.#.mlp.shared.gate.", "layers.#.feed_forward.shared_expert.gate_proj."},
    {"layers.#.mlp.shared.up.", "layers.#.feed_forward.shared_expert.up_proj."},
    {"layers.#.mlp.shared.down.", "layers.#.feed_forward.shared_expert.down_proj."},
};

void read_sparse(ConfigReader& config, ModelSpec& spec) {
  read_experts(config, spec,
               {.count = "num_local_experts",
                .size = "intermediate_size",
                .default_count = 16,
                .default_top_k = 1,
                .has_aux_loss = false});
  spec.experts->router = {.score = RouterScore::kSigmoid, .normalize = false, .scales_input = true};
  spec.experts->in_out = true;
  spec.experts->shared_intermediate_size = spec.experts->intermediate_size;
  const int64_t step = config.size("interleave_moe_layer_step", 1);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer)
    spec.layers[layer].experts = (layer + 1) % std::max<int64_t>(step, 1) == 0;
  if (const auto sparse = read_layer_list(config, spec, "moe_layers")) {
    for (LayerSpec& layer : spec.layers) layer.experts = false;
    for (const int64_t layer : *sparse) spec.layers[layer].experts = true;
  }
}

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 131072,
                .kv_heads = 8,
                .head_dim = 128,
                .norm = {.eps = 1e-5},
                .rope = {.theta = 500000, .interleaved = true},
                .window = {.own_layer_types = true}});
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  read_sparse(config, spec);
  const int64_t mlp_size = config.size("intermediate_size_mlp", 16384, 16 * kMaxWidth);
  read_rope_layers(config, spec, /*empty_is_missing=*/true);
  const bool whole =
      config.has("attention_chunk_size") && config.find("attention_chunk_size") == nullptr;
  const int64_t chunk = whole ? 0 : config.size("attention_chunk_size", 8192);
  const bool tunes = config.flag("attn_temperature_tuning", true);
  spec.query_scale = {.scale = config.number("attn_scale", 0.1),
                      .interval = config.size("floor_scale", 8192),
                      .offset = 1};
  if (config.flag("use_qk_norm", true)) spec.qk_norm = QkNorm::kPerHead;
  spec.qk_norm_spec.weight = false;
  spec.qk_norm_after_rope = true;
  for (LayerSpec& layer : spec.layers) {
    const bool rotates = layer.rope != LayerRope::kNone;
    layer.intermediate_size = mlp_size;
    layer.chunk = rotates ? chunk : 0;
    layer.qk_norm = rotates;
    layer.scales_queries = !rotates && tunes;
  }
  if (const auto in_chunks = read_layer_types(config, spec, "chunked_attention")) {
    for (int64_t layer = 0; layer < spec.num_layers; ++layer)
      spec.layers[layer].chunk = (*in_chunks)[static_cast<size_t>(layer)] ? chunk : 0;
  }
}

}  // namespace

Family llama4_text_family() {
  return {.model_type = "llama4_text", .read = read, .names = kNames};
}

}  // namespace zeroth::model
