// Qwen2 and 2.5, with biases of q, k and v; Qwen3, with norms of q and k; their mixtures of
// experts.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kSharedExpertNames[] = {
    {"layers.#.mlp.shared.gate.", "layers.#.mlp.shared_expert.gate_proj."},
    {"layers.#.mlp.shared.up.", "layers.#.mlp.shared_expert.up_proj."},
    {"layers.#.mlp.shared.down.", "layers.#.mlp.shared_expert.down_proj."},
    {"layers.#.mlp.shared_gate.", "layers.#.mlp.shared_expert_gate."},
};

constexpr int64_t kPositions = 32768;
constexpr WindowKeys kWindow = {
    .allowed = true, .size = 4096, .has_switch = true, .has_layer_types = true};

void read_qwen2(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.max_positions = kPositions, .kv_heads = 32, .window = kWindow});
  spec.qkv_bias = true;
  config.reject("attention_bias");
  config.reject("mlp_bias");
}

void read_qwen3(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = kPositions, .kv_heads = 32, .head_dim = 128, .window = kWindow});
  spec.qk_norm = QkNorm::kPerHead;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  config.reject("mlp_bias");
}

void read_qwen2_moe(ConfigReader& config, ModelSpec& spec) {
  // Without layer_types every second layer has a window, among the first ones.
  read_decoder(config, spec,
               {.max_positions = kPositions,
                .kv_heads = 16,
                .window = {.allowed = true,
                           .size = 4096,
                           .has_switch = true,
                           .switch_ends = true,
                           .has_layer_types = true,
                           .full_every = 2}});
  spec.qkv_bias = config.flag("qkv_bias", true);
  read_experts(config, spec, {.default_count = 60, .default_top_k = 4, .default_size = 1408});
  spec.experts->router.normalize = config.flag("norm_topk_prob", false);
  spec.experts->shared_intermediate_size =
      config.size("shared_expert_intermediate_size", 5632, 16 * kMaxWidth);
  spec.experts->shared_gate = true;
  read_sparse_layers(config, spec);
}

void read_qwen3_moe(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = kPositions,
                .kv_heads = 4,
                .window = {.allowed = true, .size = 4096, .has_switch = true, .has_first = false}});
  spec.qk_norm = QkNorm::kPerHead;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  read_experts(config, spec,
               {// transformers 5 writes num_local_experts.
                .count = config.has("num_local_experts") ? "num_local_experts" : "num_experts",
                .default_count = 128,
                .default_top_k = 8,
                .default_size = 768});
  spec.experts->router.normalize = config.flag("norm_topk_prob", false);
  read_sparse_layers(config, spec);
}

}  // namespace

Family qwen2_family() {
  return {.model_type = "qwen2", .read = read_qwen2, .lora_targets = llama_targets()};
}

Family qwen3_family() {
  return {.model_type = "qwen3", .read = read_qwen3, .lora_targets = llama_targets()};
}

Family qwen2_moe_family() {
  return {.model_type = "qwen2_moe",
          .read = read_qwen2_moe,
          .names = kSharedExpertNames,
          .stacked = expert_names()};
}

Family qwen3_moe_family() {
  return {.model_type = "qwen3_moe", .read = read_qwen3_moe, .stacked = expert_names()};
}

}  // namespace zeroth::model
