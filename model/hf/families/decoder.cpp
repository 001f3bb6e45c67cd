#include "model/hf/families/decoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json/json.h"

namespace zeroth::model {
namespace {

using nlohmann::json;

constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
    {"relu2", Activation::kReluSquared}};

constexpr NamePair kLlamaNames[] = {
    {"embedding.weight", "embed_tokens.weight"},
    {"layers.#.attention_norm.", "layers.#.input_layernorm."},
    {"layers.#.attention.q.", "layers.#.self_attn.q_proj."},
    {"layers.#.attention.k.", "layers.#.self_attn.k_proj."},
    {"layers.#.attention.v.", "layers.#.self_attn.v_proj."},
    {"layers.#.attention.o.", "layers.#.self_attn.o_proj."},
    {"layers.#.attention.q_norm.", "layers.#.self_attn.q_norm."},
    {"layers.#.attention.k_norm.", "layers.#.self_attn.k_norm."},
    {"layers.#.mlp_norm.", "layers.#.post_attention_layernorm."},
    {"layers.#.mlp.gate.", "layers.#.mlp.gate_proj."},
    {"layers.#.mlp.up.", "layers.#.mlp.up_proj."},
    {"layers.#.mlp.down.", "layers.#.mlp.down_proj."},
    {"head.norm.", "norm."},
    {"layers.#.mlp.router.correction_bias", "layers.#.mlp.gate.e_score_correction_bias"},
    {"layers.#.mlp.router.", "layers.#.mlp.gate."},
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.gate_up_proj"},
    {"layers.#.mlp.experts.down", "layers.#.mlp.experts.down_proj"},
    {"layers.#.mlp.shared.gate.", "layers.#.mlp.shared_experts.gate_proj."},
    {"layers.#.mlp.shared.up.", "layers.#.mlp.shared_experts.up_proj."},
    {"layers.#.mlp.shared.down.", "layers.#.mlp.shared_experts.down_proj."},
};

constexpr NamePair kPostNormNames[] = {
    {"layers.#.attention_post_norm.", "layers.#.post_attention_layernorm."},
    {"layers.#.mlp_post_norm.", "layers.#.post_feedforward_layernorm."},
};

constexpr std::string_view kTargets[] = {"q_proj", "v_proj"};
constexpr std::string_view kRotaryBuffers[] = {"rotary_emb.inv_freq"};

// Reads which layers have the window from layer_types, if that is given.
void read_windowed_layers(ConfigReader& config, int64_t window, ModelSpec& spec) {
  const auto windowed = read_layer_types(config, spec, "sliding_attention");
  if (!windowed) return;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const bool has_window = (*windowed)[static_cast<size_t>(layer)];
    if (has_window && window == 0)
      config.add_error("layer_types", "has sliding_attention, but no sliding_window is in use");
    spec.layers[layer].window = has_window ? window : 0;
  }
}

void read_window(ConfigReader& config, const WindowKeys& keys, ModelSpec& spec) {
  if (!keys.allowed) {
    config.reject("sliding_window");
    config.reject("use_sliding_window");
    if (!keys.own_layer_types) read_windowed_layers(config, 0, spec);
    return;
  }
  const bool is_on = !keys.has_switch || config.flag("use_sliding_window", false);
  const int64_t window =
      config.is_null("sliding_window") || !is_on ? 0 : config.size("sliding_window", keys.size);
  int64_t first = 0, end = spec.num_layers;
  if (keys.has_switch && keys.has_first) {
    const double from = config.number("max_window_layers", 28);
    const auto layer =
        static_cast<int64_t>(std::clamp(from, 0.0, static_cast<double>(spec.num_layers)));
    (keys.switch_ends ? end : first) = layer;
  }
  if (!keys.has_layer_types) config.reject("layer_types");
  if (keys.has_layer_types && config.find("layer_types") != nullptr) {
    if (keys.full_every_key != nullptr) config.find(keys.full_every_key);  // has no effect
    return read_windowed_layers(config, window, spec);
  }
  const int64_t full_every = keys.full_every_key == nullptr
                                 ? keys.full_every
                                 : config.size(keys.full_every_key, keys.full_every);
  for (int64_t layer = first; layer < end; ++layer) {
    const bool full = full_every > 0 && (layer + 1) % full_every == 0;
    spec.layers[layer].window = full ? 0 : window;
  }
}

void read_heads(ConfigReader& config, const DecoderKeys& keys, ModelSpec& spec) {
  spec.num_heads = config.size("num_attention_heads", {}, kMaxWidth);
  constexpr const char* kKvHeads = "num_key_value_heads";
  // As in transformers, null is not a missing key: it means one for each head.
  const int64_t kv_heads = keys.kv_heads.value_or(spec.num_heads);
  spec.num_kv_heads = spec.num_heads;
  if (keys.has_kv_heads && !config.is_null(kKvHeads))
    spec.num_kv_heads = config.size(kKvHeads, kv_heads, kMaxWidth);
  if (keys.rotated_dim) {
    spec.head_dim = *keys.rotated_dim;
    return;
  }
  const bool explicit_dim =
      !config.is_null("head_dim") && (config.has("head_dim") || keys.head_dim);
  spec.head_dim = explicit_dim ? config.size("head_dim", keys.head_dim, kMaxWidth)
                               : spec.hidden_size / std::max<int64_t>(spec.num_heads, 1);
  if (spec.num_heads == 0 || spec.num_kv_heads == 0) return;
  if (!explicit_dim) {
    require_multiple(config, "hidden_size", spec.hidden_size, "num_attention_heads",
                     spec.num_heads);
  }
  check_heads(config, spec.num_heads, spec.num_kv_heads, spec.head_dim);
}

}  // namespace

void read_decoder(ConfigReader& config, ModelSpec& spec, const DecoderKeys& keys) {
  spec.hidden_size = config.size("hidden_size", {}, kMaxWidth);
  if (keys.has_mlp || config.find("intermediate_size") != nullptr)
    spec.intermediate_size = config.size("intermediate_size", {}, 16 * kMaxWidth);
  spec.num_layers = config.size("num_hidden_layers", {}, kMaxLayers);
  spec.layers.resize(static_cast<size_t>(spec.num_layers));
  read_heads(config, keys, spec);
  spec.max_positions = config.size("max_position_embeddings", keys.max_positions);
  spec.norm = keys.norm;
  spec.norm.eps = config.positive(keys.norm_eps_key, keys.norm.eps);
  spec.qk_norm_spec = spec.norm;
  spec.rope = read_rope(config, spec.head_dim, spec.max_positions, keys.rope);
  if (keys.local_rope)
    spec.local_rope = read_rope(config, spec.head_dim, spec.max_positions, *keys.local_rope);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", keys.tied);
  spec.attention_dropout = read_dropout(config, "attention_dropout", keys.attention_dropout);
  if (keys.activation_key != nullptr)
    spec.activation = read_activation(config, keys.activation_key, keys.activation);
  read_window(config, keys.window, spec);
  for (LayerSpec& layer : spec.layers) {
    if (keys.local_rope && layer.window > 0) layer.rope = LayerRope::kLocal;
  }
}

const json* find_layer_entries(ConfigReader& config, const ModelSpec& spec, const char* key) {
  const json* const entries = config.find(key);
  if (entries == nullptr || (entries->is_array() && std::ssize(*entries) == spec.num_layers))
    return entries;
  config.add_error(key, "does not have one entry for each of the {} layers", spec.num_layers);
  return nullptr;
}

std::optional<std::vector<bool>> read_layer_types(ConfigReader& config, const ModelSpec& spec,
                                                  std::string_view type) {
  constexpr const char* kKey = "layer_types";
  constexpr std::string_view kFull = "full_attention";
  const json* const entries = find_layer_entries(config, spec, kKey);
  if (entries == nullptr) return std::nullopt;
  std::vector<bool> has_type;
  for (const json& entry : *entries) {
    has_type.push_back(entry == type);
    if (!has_type.back() && entry != kFull)
      config.add_error(kKey, "has {}; supported are {}, {}", quoted(entry), std::min(type, kFull),
                       std::max(type, kFull));
  }
  return has_type;
}

void read_sizes(ConfigReader& config, ModelSpec& spec, const SizeKeys& keys) {
  spec.hidden_size = config.size(keys.hidden, {}, kMaxWidth);
  spec.num_layers = config.size(keys.layers, keys.default_layers, kMaxLayers);
  spec.layers.resize(static_cast<size_t>(spec.num_layers));
  spec.num_heads = spec.num_kv_heads = config.size(keys.heads, {}, kMaxWidth);
  spec.head_dim = spec.num_heads > 0 ? spec.hidden_size / spec.num_heads : 0;
  require_multiple(config, keys.hidden, spec.hidden_size, keys.heads, spec.num_heads);
}

void read_gpt_sizes(ConfigReader& config, ModelSpec& spec) {
  read_sizes(config, spec, {.hidden = "n_embd", .layers = "n_layer", .heads = "n_head"});
  spec.intermediate_size = config.size("n_inner", 4 * spec.hidden_size, 16 * kMaxWidth);
  spec.max_positions = config.size("n_positions");
  // Other names of the same, which win in transformers.
  config.require("hidden_size", spec.hidden_size);
  config.require("num_hidden_layers", spec.num_layers);
  config.require("num_attention_heads", spec.num_heads);
  config.require("max_position_embeddings", spec.max_positions);
  spec.norm = {
      .kind = NormKind::kLayer, .eps = config.positive("layer_norm_epsilon", 1e-5), .bias = true};
  spec.gated_mlp = false;
  spec.activation = read_activation(config, "activation_function", "gelu_new");
  config.reject("attention_dropout");
}

void read_biases(ConfigReader& config, ModelSpec& spec) {
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
}

std::vector<double> alibi_slopes(int64_t num_heads) {
  const auto series = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_heads)));
  std::vector<double> slopes;
  const auto add = [&](int64_t first, int64_t step) {
    for (int64_t i = first; i <= series && std::ssize(slopes) < num_heads; i += step)
      slopes.push_back(std::exp2(-8 * static_cast<double>(i) / static_cast<double>(series)));
  };
  if (series == num_heads) {
    add(1, 1);
  } else {
    add(2, 2);
    add(1, 2);
  }
  return slopes;
}

void use_alibi(ModelSpec& spec, std::vector<double> slopes) {
  spec.alibi_slopes = std::move(slopes);
  for (LayerSpec& layer : spec.layers) layer.rope = LayerRope::kNone;
}

Activation read_activation(ConfigReader& config, const std::string& key,
                           const std::string& fallback) {
  return config.choose(key, config.text(key, fallback), kActivations,
                       "silu, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu, relu2");
}

double read_dropout(ConfigReader& config, const std::string& key, double fallback) {
  const double p = config.number(key, fallback);
  if (p < 0 || p >= 1) config.add_error(key, "is {}, expected 0 <= p < 1", p);
  return p;
}

double read_softcap(ConfigReader& config, const char* key, double fallback) {
  const bool null = config.has(key) && config.find(key) == nullptr;
  return null || (fallback == 0 && !config.has(key)) ? 0 : config.positive(key, fallback);
}

void check_heads(ConfigReader& config, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  require_multiple(config, "num_attention_heads", heads, "num_key_value_heads", kv_heads);
  if (heads * head_dim > kMaxWidth)
    config.add_error("num_attention_heads", "{} x head_dim {}, expected at most {}", heads,
                     head_dim, kMaxWidth);
}

void require_multiple(ConfigReader& config, const char* key, int64_t value, const char* divisor_key,
                      int64_t divisor) {
  if (divisor > 0 && value % divisor != 0) {
    config.add_error(key, "is {}, not a multiple of {} {}", value, divisor_key, divisor);
  }
}

std::span<const NamePair> llama_names() {
  return kLlamaNames;
}

std::span<const NamePair> post_norm_names() {
  return kPostNormNames;
}

std::span<const std::string_view> llama_targets() {
  return kTargets;
}

std::span<const std::string_view> rotary_buffers() {
  return kRotaryBuffers;
}

}  // namespace zeroth::model
