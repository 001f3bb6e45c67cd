// Gemma 4, the text model: Gemma 3's norms with weights around 1, heads of two sizes, values that
// are normalized, inputs of each layer's own, layers that use the keys and values of earlier ones,
// and in one size experts beside the MLP.
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json/json.h"
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

using nlohmann::json;

constexpr NamePair kNames[] = {
    {"embedding.per_layer.weight", "embed_tokens_per_layer.weight"},
    {"embedding.per_layer.projection.", "per_layer_model_projection."},
    {"embedding.per_layer.norm.", "per_layer_projection_norm."},
    {"layers.#.attention_post_norm.", "layers.#.post_attention_layernorm."},
    {"layers.#.mlp_norm.", "layers.#.pre_feedforward_layernorm."},
    {"layers.#.mlp_post_norm.", "layers.#.post_feedforward_layernorm."},
    {"layers.#.mlp_branch_norm.", "layers.#.post_feedforward_layernorm_1."},
    {"layers.#.experts_norm.", "layers.#.pre_feedforward_layernorm_2."},
    {"layers.#.experts_post_norm.", "layers.#.post_feedforward_layernorm_2."},
    {"layers.#.experts.router.", "layers.#.router."},
    {"layers.#.experts.experts.gate_up", "layers.#.experts.gate_up_proj"},
    {"layers.#.experts.experts.down", "layers.#.experts.down_proj"},
    {"layers.#.per_layer_gate.", "layers.#.per_layer_input_gate."},
    {"layers.#.per_layer_projection.", "layers.#.per_layer_projection."},
    {"layers.#.per_layer_norm.", "layers.#.post_per_layer_input_norm."},
    {"layers.#.layer_scalar", "layers.#.layer_scalar"},
};

constexpr char kGlobalRope[] =
    R"({"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0})";

constexpr char kLocalRope[] = R"({"rope_type": "default", "rope_theta": 10000.0})";

bool is_full(const LayerSpec& layer) {
  return layer.window == 0;
}

// Reads the sizes of the heads of some layers: per_layer_config has an object for each of them;
// without it the older keys are those of all layers without a window.
void read_layer_sizes(ConfigReader& config, ModelSpec& spec) {
  constexpr const char* kKey = "per_layer_config";
  constexpr const char* kHeadDim = "global_head_dim";
  constexpr const char* kKvHeads = "num_global_key_value_heads";
  config.find(kHeadDim);  // has no effect beside per_layer_config
  const bool has_kv_heads = config.find(kKvHeads) != nullptr;
  if (!config.has(kKey)) {
    const int64_t head_dim = config.size(kHeadDim, 512, kMaxWidth);
    std::optional<int64_t> kv_heads;
    if (config.flag("attention_k_eq_v", false) && has_kv_heads)
      kv_heads = config.size(kKvHeads, {}, kMaxWidth);
    for (LayerSpec& layer : spec.layers) {
      if (!is_full(layer)) continue;
      layer.head_dim = head_dim;
      layer.num_kv_heads = kv_heads;
    }
    return;
  }
  const json* const layers = config.find(kKey);
  if (layers == nullptr) return;
  if (!layers->is_object()) return config.add_error(kKey, "is no object of layers");
  std::set<int64_t> known;
  for (const auto& [name, sizes] : layers->items()) {
    int64_t index = -1;  // transformers writes leading zeros: "05" beside "11"
    const char* const end = name.data() + name.size();
    const bool is_number = std::from_chars(name.data(), end, index).ptr == end;
    if (!is_number || index < 0 || index >= spec.num_layers || !sizes.is_object() ||
        !known.insert(index).second) {
      config.add_error(kKey, "has {}, expected one object for each of some layers from 0 to {}",
                       quoted(json(name)), spec.num_layers - 1);
      continue;
    }
    ConfigReader own(sizes, fmt::format("{}.{}.", kKey, name));
    LayerSpec& layer = spec.layers[static_cast<size_t>(index)];
    layer.head_dim = own.size("head_dim", spec.head_dim, kMaxWidth);
    layer.num_kv_heads = own.size("num_key_value_heads", spec.num_kv_heads, kMaxWidth);
    own.reject("skip");
    own.collect_unknown_keys({});
    for (const std::string& key : own.unknown_keys())
      config.add_error(key, "is not supported for a single layer");
    config.add(own);
  }
}

// Checks the sizes, and gives rotary embeddings those of their layers, which must be alike.
void check_layer_sizes(ConfigReader& config, ModelSpec& spec) {
  std::map<bool, int64_t> first;  // by is_full()
  for (int64_t index = 0; index < spec.num_layers; ++index) {
    const int64_t head_dim = spec.layer_head_dim(index), kv_heads = spec.layer_kv_heads(index);
    const bool full = is_full(spec.layer(index));
    const int64_t same = first.try_emplace(full, index).first->second;
    if (head_dim != spec.layer_head_dim(same) || kv_heads != spec.layer_kv_heads(same))
      config.add_error("per_layer_config",
                       "gives layers {} and {}, which are of one type, heads of different sizes",
                       same, index);
    RopeSpec& rope = full ? spec.rope : spec.local_rope;
    rope.head_dim = head_dim;
    if (same != index) continue;
    if (rope.scaling == RopeScaling::kLongRope && head_dim != spec.head_dim)
      config.add_error("rope_parameters", "has longrope for heads of {} dimensions beside {}",
                       head_dim, spec.head_dim);
    if (head_dim % 2 != 0)
      config.add_error("head_dim", "is {}, but rotary embeddings need an even number of dimensions",
                       head_dim);
    check_heads(config, spec.num_heads, kv_heads, head_dim);
  }
}

// The last layers use the keys and values of the last layer of their type before them.
void read_shared_layers(ConfigReader& config, ModelSpec& spec) {
  constexpr const char* kKey = "num_kv_shared_layers";
  const double shared = config.number(kKey, 0.0);
  const bool doubled = config.flag("use_double_wide_mlp", false);
  if (shared == 0 || spec.num_layers == 0) return;
  if (!(shared > 0 && shared < static_cast<double>(spec.num_layers)) ||
      shared != std::floor(shared))
    return config.add_error(kKey, "is {}, expected a whole number from 0 to {}", shared,
                            spec.num_layers - 1);
  const int64_t first = spec.num_layers - static_cast<int64_t>(shared);
  for (int64_t index = first; index < spec.num_layers; ++index) {
    LayerSpec& layer = spec.layers[static_cast<size_t>(index)];
    for (int64_t earlier = 0; earlier < first; ++earlier)
      if (is_full(spec.layer(earlier)) == is_full(layer)) layer.kv_layer = earlier;
    if (!layer.kv_layer)
      return config.add_error(kKey, "is {}, but no earlier layer is of the type of layer {}",
                              shared, index);
    if (doubled) layer.intermediate_size = 2 * spec.intermediate_size;
  }
}

void read_sparse(ConfigReader& config, ModelSpec& spec) {
  if (!config.flag("enable_moe_block", false)) {
    for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"})
      config.find(key);  // has no effect
    return;
  }
  read_experts(
      config, spec,
      {.top_k = "top_k_experts", .activation = "hidden_activation", .has_aux_loss = false});
  spec.experts->router.has_scales = true;
  spec.experts->beside_mlp = true;
}

void read_per_layer_input(ConfigReader& config, ModelSpec& spec) {
  constexpr const char* kSize = "hidden_size_per_layer_input";
  constexpr const char* kVocabSize = "vocab_size_per_layer_input";
  config.find(kVocabSize);  // has no effect without the inputs
  if (config.is_null(kSize) || config.number(kSize, 256.0) == 0) return;
  const int64_t vocab_size = config.size(kVocabSize, 262144, kMaxVocabSize);
  spec.per_layer_input = {.vocab_size = vocab_size, .size = config.size(kSize, 256, kMaxWidth)};
  require_width(config, kSize, spec.num_layers * spec.per_layer_input->size);
  const int64_t tokens = config.size("vocab_size", 0);
  if (vocab_size < tokens)
    config.add_error(kVocabSize, "is {}, less than the vocab_size of {}", vocab_size, tokens);
}

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(
      config, spec,
      {.max_positions = 131072,
       .kv_heads = 4,
       .head_dim = 256,
       .norm = {.product_in_fp32 = true},
       .activation = "gelu_pytorch_tanh",
       .activation_key = "hidden_activation",
       .tied = true,
       .rope = {.theta = 1000000,
                .theta_key = nullptr,
                .layer_type = "full_attention",
                .parameters = kGlobalRope},
       .local_rope =
           RopeKeys{
               .theta_key = nullptr, .layer_type = "sliding_attention", .parameters = kLocalRope},
       .window = {.allowed = true, .size = 512, .has_layer_types = true, .full_every = 6}});
  config.reject("rope_scaling");
  if (config.is_null("sliding_window"))
    config.add_error("sliding_window", "is null, expected a number of tokens");
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  spec.norm_placement = NormPlacement::kSandwich;
  spec.qk_norm = QkNorm::kPerHead;
  spec.v_norm = spec.layer_scalar = true;
  spec.embedding_multiplier = std::sqrt(static_cast<double>(spec.hidden_size));
  spec.rounds_embedding_multiplier = true;
  spec.logits_softcap = read_softcap(config, "final_logit_softcapping", 0);
  // "vision" changes the attention of an image's tokens alone.
  if (config.text("use_bidirectional_attention", "vision") != "vision")
    config.reject("use_bidirectional_attention");
  if (!spec.layers.empty()) {
    spec.layers.back().window = 0;  // whatever its entry of layer_types is
    spec.layers.back().rope = LayerRope::kGlobal;
  }
  read_layer_sizes(config, spec);
  check_layer_sizes(config, spec);
  read_shared_layers(config, spec);
  const bool k_is_v = config.flag("attention_k_eq_v", false);
  for (LayerSpec& layer : spec.layers) {
    layer.score_scale = 1;
    layer.k_is_v = k_is_v && is_full(layer);
  }
  read_sparse(config, spec);
  read_per_layer_input(config, spec);
}

}  // namespace

Family gemma4_text_family() {
  return {.model_type = "gemma4_text",
          .read = read,
          .names = kNames,
          .lora_targets = llama_targets(),
          .padding_token = 0};
}

}  // namespace zeroth::model
