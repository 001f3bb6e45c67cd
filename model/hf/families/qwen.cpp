// Qwen2 and 2.5, with biases of q, k and v; Qwen3, with norms of q and k; Qwen3-Next and 3.5, with
// gated delta nets in most layers; their mixtures of experts.
#include <algorithm>

#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"layers.#.mlp.shared.gate.", "layers.#.mlp.shared_expert.gate_proj."},
    {"layers.#.mlp.shared.up.", "layers.#.mlp.shared_expert.up_proj."},
    {"layers.#.mlp.shared.down.", "layers.#.mlp.shared_expert.down_proj."},
    {"layers.#.mlp.shared_gate.", "layers.#.mlp.shared_expert_gate."},
    {"layers.#.delta_net.qkvz.", "layers.#.linear_attn.in_proj_qkvz."},
    {"layers.#.delta_net.ba.", "layers.#.linear_attn.in_proj_ba."},
    {"layers.#.delta_net.qkv.", "layers.#.linear_attn.in_proj_qkv."},
    {"layers.#.delta_net.z.", "layers.#.linear_attn.in_proj_z."},
    {"layers.#.delta_net.b.", "layers.#.linear_attn.in_proj_b."},
    {"layers.#.delta_net.a.", "layers.#.linear_attn.in_proj_a."},
    {"layers.#.delta_net.conv.", "layers.#.linear_attn.conv1d."},
    {"layers.#.delta_net.A_log", "layers.#.linear_attn.A_log"},
    {"layers.#.delta_net.dt_bias", "layers.#.linear_attn.dt_bias"},
    {"layers.#.delta_net.norm.", "layers.#.linear_attn.norm."},
    {"layers.#.delta_net.o.", "layers.#.linear_attn.out_proj."},
};

constexpr std::string_view kMtp[] = {"mtp."};  // prediction of several tokens

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

void read_shared_expert(ConfigReader& config, ModelSpec& spec, int64_t size) {
  spec.experts->shared_intermediate_size =
      config.size("shared_expert_intermediate_size", size, 16 * kMaxWidth);
  spec.experts->shared_gate = true;
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
  read_shared_expert(config, spec, 5632);
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

// Reads which layers have attention, and what the others have.
void read_delta_net(ConfigReader& config, ModelSpec& spec, bool fused) {
  constexpr int64_t kMaxKernel = 1 << 8;
  DeltaNetSpec net{.key_heads = config.size("linear_num_key_heads", 16, kMaxWidth),
                   .value_heads = config.size("linear_num_value_heads", 32, kMaxWidth),
                   .key_dim = config.size("linear_key_head_dim", 128, kMaxWidth),
                   .value_dim = config.size("linear_value_head_dim", 128, kMaxWidth),
                   .kernel = config.size("linear_conv_kernel_dim", 4, kMaxKernel),
                   .fused = fused};
  require_multiple(config, "linear_num_value_heads", net.value_heads, "linear_num_key_heads",
                   net.key_heads);
  require_width(config, "linear_num_key_heads", net.key_heads * net.key_dim);
  require_width(config, "linear_num_value_heads", net.value_heads * net.value_dim);
  if (spec.activation != Activation::kSilu)
    config.add_error("hidden_act", "is not silu, which a gated delta net needs");
  spec.delta_net = net;
  const int64_t interval = std::max<int64_t>(config.size("full_attention_interval", 4), 1);
  const auto linear = read_layer_types(config, spec, "linear_attention");
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const bool is_linear =
        linear ? (*linear)[static_cast<size_t>(layer)] : (layer + 1) % interval != 0;
    if (is_linear) spec.layers[layer].mixer = LayerMixer::kDeltaNet;
  }
}

// What Qwen3-Next and 3.5 do not share.
struct HybridKeys {
  int64_t kv_heads = 0;
  bool fused = false;
  bool has_mlp = true;
};

void read_hybrid(ConfigReader& config, ModelSpec& spec, const HybridKeys& keys) {
  read_decoder(config, spec,
               {.max_positions = kPositions,
                .has_mlp = keys.has_mlp,
                .kv_heads = keys.kv_heads,
                .head_dim = 256,
                .norm = {.weight_offset = 1, .product_in_fp32 = true},
                .rope = {.is_partial = true, .partial_factor = 0.25, .has_sections = !keys.fused},
                .window = {.own_layer_types = true}});
  spec.qk_norm = QkNorm::kPerHead;
  spec.gated_attention = true;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  read_delta_net(config, spec, keys.fused);
  config.require("attn_output_gate", true);  // transformers does not read it
  // Of layers that are skipped, and of states in generation.
  for (const char* key :
       {"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"})
    config.find(key);
}

void read_hybrid_experts(ConfigReader& config, ModelSpec& spec, int64_t count, int64_t top_k) {
  read_experts(config, spec, {.default_count = count, .default_top_k = top_k, .default_size = 512});
  read_shared_expert(config, spec, 512);
}

void read_qwen3_next(ConfigReader& config, ModelSpec& spec) {
  read_hybrid(config, spec, {.kv_heads = 2, .fused = true});
  read_hybrid_experts(config, spec, 512, 10);
  spec.experts->router.normalize = config.flag("norm_topk_prob", true);
  read_sparse_layers(config, spec);
}

// Qwen3.5 has the same feed-forward in all layers.
void reject_sparse_layers(ConfigReader& config) {
  config.reject("mlp_only_layers");
  config.require("decoder_sparse_step", 1);
}

void read_qwen3_5(ConfigReader& config, ModelSpec& spec) {
  read_hybrid(config, spec, {.kv_heads = 4});
  reject_sparse_layers(config);
}

void read_qwen3_5_moe(ConfigReader& config, ModelSpec& spec) {
  read_hybrid(config, spec, {.kv_heads = 2, .has_mlp = false});
  read_hybrid_experts(config, spec, 256, 8);
  config.require("norm_topk_prob", true);  // transformers does not read it
  reject_sparse_layers(config);
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
          .names = kNames,
          .stacked = expert_names()};
}

Family qwen3_next_family() {
  return {.model_type = "qwen3_next",
          .read = read_qwen3_next,
          .names = kNames,
          .stacked = expert_names(),
          .skipped_prefixes = kMtp};
}

Family qwen3_5_text_family() {
  return {.model_type = "qwen3_5_text",
          .read = read_qwen3_5,
          .names = kNames,
          .skipped_prefixes = kMtp};
}

Family qwen3_5_moe_text_family() {
  return {.model_type = "qwen3_5_moe_text",
          .read = read_qwen3_5_moe,
          .names = kNames,
          .stacked = expert_names(),
          .skipped_prefixes = kMtp};
}

Family qwen3_moe_family() {
  return {.model_type = "qwen3_moe", .read = read_qwen3_moe, .stacked = expert_names()};
}

}  // namespace zeroth::model
