// Granite 3: Llama with factors of the embedding, the scores, the residual stream and the logits;
// its mixtures of experts; Granite 4 where every layer has attention.
#include <nlohmann/json.hpp>

#include "base/json/json.h"
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kMoeNames[] = {
    {"layers.#.mlp.router.", "layers.#.block_sparse_moe.router.layer."},
    {"layers.#.mlp.experts.gate_up", "layers.#.block_sparse_moe.input_linear.weight"},
    {"layers.#.mlp.experts.down", "layers.#.block_sparse_moe.output_linear.weight"},
    {"layers.#.mlp.shared.gate_up.", "layers.#.shared_mlp.input_linear."},
    {"layers.#.mlp.shared.down.", "layers.#.shared_mlp.output_linear."},
};

constexpr NamePair kDense4Names[] = {
    {"layers.#.mlp.gate_up.", "layers.#.shared_mlp.input_linear."},
    {"layers.#.mlp.down.", "layers.#.shared_mlp.output_linear."},
};

void read(ConfigReader& config, ModelSpec& spec, const WindowKeys& window = {}) {
  read_decoder(config, spec, {.max_positions = 2048, .window = window});
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  spec.embedding_multiplier = config.number("embedding_multiplier", 1);
  const double score_scale = config.number("attention_multiplier", 1);
  for (LayerSpec& layer : spec.layers) layer.score_scale = score_scale;
  spec.residual_multiplier = config.number("residual_multiplier", 1);
  spec.logits_multiplier = 1 / config.positive("logits_scaling", 1);
}

void read_dense(ConfigReader& config, ModelSpec& spec) {
  read(config, spec);
  spec.mlp_bias = config.flag("mlp_bias", false);
}

void read_sparse(ConfigReader& config, ModelSpec& spec) {
  read_experts(config, spec,
               {.count = "num_local_experts",
                .size = "intermediate_size",
                .default_count = 8,
                .default_top_k = 2});
}

void read_moe(ConfigReader& config, ModelSpec& spec) {
  read(config, spec);
  read_sparse(config, spec);
}

// Adds an error for layers with state spaces.
void require_attention(ConfigReader& config, const ModelSpec& spec) {
  const bool old_key = config.find("layer_types") == nullptr;
  const char* const key = old_key ? "layers_block_type" : "layer_types";
  if (config.find(key) == nullptr)
    return config.add_error("layer_types",
                            "is missing, which means layers with state spaces; "
                            "supported are models whose layers all have attention");
  const nlohmann::json* const types = find_layer_entries(config, spec, key);
  if (types == nullptr) return;
  for (const nlohmann::json& type : *types) {
    if (type != "attention" && type != "full_attention")
      return config.add_error(key, "has {}; supported are attention, full_attention", quoted(type));
  }
}

void read_hybrid(ConfigReader& config, ModelSpec& spec) {
  read(config, spec, {.own_layer_types = true});
  require_attention(config, spec);
  spec.fused_gate_up = true;
  const int64_t shared = config.size("shared_intermediate_size", 1024, 16 * kMaxWidth);
  if (config.number("num_local_experts", 8) > 0) {
    read_sparse(config, spec);
    spec.experts->shared_intermediate_size = shared;
  } else {
    spec.intermediate_size = shared;
  }
  const std::string positions = config.text("position_embedding_type", "nope");
  if (positions != "rope") {
    for (LayerSpec& layer : spec.layers) layer.rope = LayerRope::kNone;
  }
  if (positions != "rope" && positions != "nope")
    config.add_error("position_embedding_type", "is \"{}\"; supported are rope, nope",
                     shortened(positions));
  for (const char* key :
       {"mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv",
        "mamba_expand", "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias", "time_step_limit",
        "time_step_min", "time_step_max", "time_step_floor", "output_router_logits",
        "router_aux_loss_coef", "num_experts_per_tok"})
    config.find(key);  // of layers that such a model does not have
}

const Family* hybrid_variant(const ModelSpec& spec);

Family hybrid_with(std::span<const NamePair> names) {
  return {.model_type = "granitemoehybrid",
          .read = read_hybrid,
          .variant = hybrid_variant,
          .names = names};
}

const Family* hybrid_variant(const ModelSpec& spec) {
  static const Family kMoe = hybrid_with(kMoeNames), kDense = hybrid_with(kDense4Names);
  return spec.experts ? &kMoe : &kDense;
}

}  // namespace

Family granite_family() {
  return {.model_type = "granite", .read = read_dense};
}

Family granitemoe_family() {
  return {.model_type = "granitemoe", .read = read_moe, .names = kMoeNames};
}

Family granitemoehybrid_family() {
  return hybrid_with(kMoeNames);
}

}  // namespace zeroth::model
