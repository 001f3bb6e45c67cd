#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "model/hf/config_reader.h"
#include "model/hf/model_directory.h"
#include "model/spec.h"

namespace zeroth::model {
namespace {

using nlohmann::json;

// Limits far beyond any existing model; with these, no size of a tensor overflows.
constexpr int64_t kMaxLayers = 1 << 10;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxVocabSize = 1 << 24;

// Keys that transformers writes and that do not change training.
const std::set<std::string> kIgnoredKeys = {
    // The model's origin and class.
    "_name_or_path", "_commit_hash", "architectures", "auto_map", "model_type", "tokenizer_class",
    "transformers_version", "unsloth_version", "unsloth_fixed",
    // How it runs.
    "_attn_implementation", "_attn_implementation_autoset", "gradient_checkpointing",
    "keys_to_ignore_at_inference", "output_attentions", "output_hidden_states", "return_dict",
    "torchscript", "use_bfloat16", "use_cache", "tf_legacy_loss",
    // Tokens.
    "bos_token_id", "cls_token_id", "decoder_start_token_id", "eos_token_id", "n_ctx",
    "pad_token_id", "prefix", "sep_token_id", "unk_token_id",
    // Generation.
    "do_sample", "early_stopping", "is_decoder", "length_penalty", "max_length", "min_length",
    "no_repeat_ngram_size", "num_beams", "num_return_sequences", "predict_special_tokens",
    "repetition_penalty", "temperature", "top_k", "top_p", "typical_p",
    // Heads for other tasks.
    "finetuning_task", "id2label", "label2id", "num_labels", "problem_type", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "task_specific_params"};

// Keys of other models and of options that change the computation: accepted only while they are
// off.
const std::vector<std::string> kUnsupportedKeys = {
    // Dropout elsewhere.
    "hidden_dropout", "hidden_dropout_prob", "residual_dropout", "embedding_dropout",
    "attention_probs_dropout_prob", "classifier_dropout",
    // Other forms of weights and layers.
    "pruned_heads", "chunk_size_feed_forward", "is_encoder_decoder", "cross_attention_hidden_size",
    "add_cross_attention", "reorder_and_upcast_attn",
    // Mixtures of experts.
    "num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok",
    "moe_intermediate_size",
    // Other attention.
    "attn_logit_softcapping", "final_logit_softcapping", "attention_chunk_size", "no_rope_layers",
    "kv_lora_rank", "q_lora_rank", "alibi", "use_mrope",
    // Other inputs, adapters and layers.
    "vision_config", "audio_config", "text_config", "adapter_attn_dim", "parallel_attn",
    "query_pre_attn_scalar"};

// Factors of other models: accepted only at 1.
const std::vector<std::string> kUnitFactors = {"pretraining_tp",      "logit_scale",
                                               "logits_scaling",      "embedding_multiplier",
                                               "residual_multiplier", "attention_multiplier"};

constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu}};

// How many layers see only a window of tokens.
enum class Windows { kNone, kAll, kSelected };

// A RotaryFamily is what a family with rotary embeddings does not share with the others.
struct RotaryFamily {
  std::string_view name;  // config.json's model_type
  int64_t max_positions;  // by default
  bool head_dim = false;  // 128 by default; false: hidden_size / num_attention_heads
  bool qk_norm = false;
  bool qkv_bias = false;
  bool attention_bias = false;  // the key is supported: biases of q, k, v and o
  bool mlp_bias = false;        // the key is supported
  Windows windows = Windows::kNone;
};

constexpr RotaryFamily kRotaryFamilies[] = {
    {.name = "llama", .max_positions = 2048, .attention_bias = true, .mlp_bias = true},
    {.name = "mistral", .max_positions = 131072, .windows = Windows::kAll},
    {.name = "qwen2", .max_positions = 32768, .qkv_bias = true, .windows = Windows::kSelected},
    {.name = "qwen3",
     .max_positions = 32768,
     .head_dim = true,
     .qk_norm = true,
     .attention_bias = true,
     .windows = Windows::kSelected}};

Activation read_activation(ConfigReader& config, const std::string& key,
                           const std::string& fallback) {
  return config.choose(key, config.text(key, fallback), kActivations,
                       "silu, gelu, gelu_new, gelu_pytorch_tanh, relu");
}

double read_dropout(ConfigReader& config, const std::string& key, double fallback) {
  const double p = config.number(key, fallback);
  if (p < 0 || p >= 1) config.add_error(key, "is {}, expected 0 <= p < 1", p);
  return p;
}

void require_multiple(ConfigReader& config, const char* key, int64_t value, const char* divisor_key,
                      int64_t divisor) {
  if (divisor > 0 && value % divisor != 0) {
    config.add_error(key, "is {}, not a multiple of {} {}", value, divisor_key, divisor);
  }
}

void read_gpt2(ConfigReader& config, ModelSpec& spec) {
  spec.hidden_size = config.size("n_embd", {}, kMaxWidth);
  spec.num_layers = config.size("n_layer", {}, kMaxLayers);
  spec.num_heads = spec.num_kv_heads = config.size("n_head", {}, kMaxWidth);
  spec.intermediate_size = config.size("n_inner", 4 * spec.hidden_size, 16 * kMaxWidth);
  spec.windowed_layers.assign(spec.num_layers, false);
  spec.max_positions = config.size("n_positions");
  spec.head_dim = spec.num_heads > 0 ? spec.hidden_size / spec.num_heads : 0;
  require_multiple(config, "n_embd", spec.hidden_size, "n_head", spec.num_heads);
  spec.norm = NormKind::kLayer;
  spec.norm_eps = config.positive("layer_norm_epsilon", 1e-5);
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
  spec.gated_mlp = false;
  spec.conv1d = spec.learned_positions = true;
  spec.scale_scores = config.flag("scale_attn_weights", true);
  spec.scale_scores_by_layer = config.flag("scale_attn_by_inverse_layer_idx", false);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.activation = read_activation(config, "activation_function", "gelu_new");
  spec.embedding_dropout = read_dropout(config, "embd_pdrop", 0.1);
  spec.attention_dropout = read_dropout(config, "attn_pdrop", 0.1);
  spec.residual_dropout = read_dropout(config, "resid_pdrop", 0.1);
  config.reject("attention_dropout");
}

// Reads which layers see only a window: all, or those that layer_types or max_window_layers
// selects.
void read_window(ConfigReader& config, Windows windows, ModelSpec& spec) {
  spec.windowed_layers.assign(spec.num_layers, false);
  if (windows == Windows::kNone) {
    config.reject("sliding_window");
    config.reject("use_sliding_window");
    return;
  }
  const bool off = config.has("sliding_window") && config.find("sliding_window") == nullptr;
  const int64_t size = off ? 0 : config.size("sliding_window", 4096);
  const double first_window_layer = config.number("max_window_layers", 28);
  const auto first = static_cast<int64_t>(
      std::clamp(first_window_layer, 0.0, static_cast<double>(spec.num_layers)));
  if (windows == Windows::kAll) {
    spec.sliding_window = size;
    spec.windowed_layers.assign(spec.num_layers, true);
    config.reject("layer_types");
    return;
  }
  if (config.flag("use_sliding_window", false)) spec.sliding_window = size;
  for (int64_t layer = first; layer < spec.num_layers; ++layer) spec.windowed_layers[layer] = true;
  const json* types = config.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || static_cast<int64_t>(types->size()) != spec.num_layers) {
    config.add_error("layer_types", "does not have one entry for each of the {} layers",
                     spec.num_layers);
    return;
  }
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const json& type = (*types)[layer];
    if (type != "full_attention" && type != "sliding_attention") {
      config.add_error("layer_types", "has {}; supported are full_attention, sliding_attention",
                       quoted(type));
    } else if (type == "sliding_attention" && spec.sliding_window == 0) {
      config.add_error("layer_types", "has sliding_attention, but no sliding_window is in use");
    }
    spec.windowed_layers[layer] = type == "sliding_attention";
  }
}

void read_heads(ConfigReader& config, const RotaryFamily& family, ModelSpec& spec) {
  spec.num_heads = config.size("num_attention_heads", {}, kMaxWidth);
  spec.num_kv_heads = config.size("num_key_value_heads", spec.num_heads, kMaxWidth);
  const bool explicit_dim = config.find("head_dim") != nullptr || family.head_dim;
  spec.head_dim = explicit_dim ? config.size("head_dim", 128, kMaxWidth)
                               : spec.hidden_size / std::max<int64_t>(spec.num_heads, 1);
  if (spec.num_heads == 0 || spec.num_kv_heads == 0) return;
  if (!explicit_dim) {
    require_multiple(config, "hidden_size", spec.hidden_size, "num_attention_heads",
                     spec.num_heads);
  }
  require_multiple(config, "num_attention_heads", spec.num_heads, "num_key_value_heads",
                   spec.num_kv_heads);
  if (spec.num_heads * spec.head_dim > kMaxWidth) {
    config.add_error("num_attention_heads", "{} x head_dim {}, expected at most {}", spec.num_heads,
                     spec.head_dim, kMaxWidth);
  }
  if (spec.head_dim % 2 != 0) {
    config.add_error("head_dim", "is {}, but rotary embeddings need an even number", spec.head_dim);
  }
}

void read_rotary_family(ConfigReader& config, const RotaryFamily& family, ModelSpec& spec) {
  spec.hidden_size = config.size("hidden_size", {}, kMaxWidth);
  spec.intermediate_size = config.size("intermediate_size", {}, 16 * kMaxWidth);
  spec.num_layers = config.size("num_hidden_layers", {}, kMaxLayers);
  read_heads(config, family, spec);
  spec.max_positions = config.size("max_position_embeddings", family.max_positions);
  spec.norm_eps = config.positive("rms_norm_eps", 1e-6);
  spec.rope = read_rope(config, spec.head_dim, spec.max_positions);
  spec.qk_norm = family.qk_norm;
  const auto read_bias = [&](const char* key, bool supported) {
    if (supported) return config.flag(key, false);
    config.reject(key);
    return false;
  };
  spec.o_bias = read_bias("attention_bias", family.attention_bias);
  spec.qkv_bias = spec.o_bias || family.qkv_bias;
  spec.mlp_bias = read_bias("mlp_bias", family.mlp_bias);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", false);
  spec.attention_dropout = read_dropout(config, "attention_dropout", 0);
  for (const char* key : {"attn_pdrop", "resid_pdrop", "embd_pdrop"}) config.reject(key);
  spec.activation = read_activation(config, "hidden_act", "silu");
  read_window(config, family.windows, spec);
}

// Returns the padding token, counted from the end if it is negative, as in nn.Embedding.
// transformers passes it to the embedding in every family except GPT-2; if the key is missing, no
// class has a default of its own.
int64_t read_padding_token(ConfigReader& config, int64_t vocab_size) {
  constexpr const char* kKey = "pad_token_id";
  const json* const value = config.find(kKey);
  if (value == nullptr) return -1;
  const auto size = static_cast<double>(vocab_size);
  const double token = value->is_number_integer() ? value->get<double>() : size;
  if (token < -size || token >= size) {
    config.add_error(kKey, "is {}, expected null or a whole number from {} to {}", quoted(*value),
                     -vocab_size, vocab_size - 1);
    return -1;
  }
  return static_cast<int64_t>(token < 0 ? token + size : token);
}

void read_common(ConfigReader& config, ModelSpec& spec) {
  spec.vocab_size = config.size("vocab_size", {}, kMaxVocabSize);
  if (spec.family != "gpt2") spec.padding_token = read_padding_token(config, spec.vocab_size);
  spec.initializer_range = config.number("initializer_range", 0.02);
  if (spec.initializer_range < 0) config.add_error("initializer_range", "is negative");
  spec.dtype = config.text("torch_dtype", "");
  spec.dtype = config.text("dtype", spec.dtype);
  spec.quantization = read_quantization(config, spec);
  for (const std::string& key : kUnsupportedKeys) config.reject(key);
  for (const std::string& key : kUnitFactors) config.require(key, 1.0);
}

}  // namespace

ModelSpec parse_model_spec(const std::string& text, const std::string& origin) {
  const json object = parse_json(text, {.name = origin, .limits = kConfigLimits});
  if (!object.is_object()) throw Error("{} is not a JSON object", origin);
  ConfigReader config(object);
  ModelSpec spec;
  spec.family = config.text("model_type");
  const auto* const family = std::ranges::find(kRotaryFamilies, spec.family, &RotaryFamily::name);
  if (spec.family == "gpt2") {
    read_gpt2(config, spec);
  } else if (family != std::end(kRotaryFamilies)) {
    read_rotary_family(config, *family, spec);
  } else {
    const std::string found = spec.family.empty() && !config.errors().empty()
                                  ? config.errors().front() + ": add it, as \"architectures\" says"
                                  : fmt::format("model_type is \"{}\"", shortened(spec.family));
    throw Error(
        "{}: {}; supported are llama, mistral, qwen2, qwen3, gpt2; for another kind of model "
        "see examples/custom_model, which builds one of blocks",
        origin, found);
  }
  read_common(config, spec);
  config.collect_unknown_keys(kIgnoredKeys);
  spec.unknown_keys = config.unknown_keys();
  if (!config.errors().empty()) throw Error("{}:\n  {}", origin, listed(config.errors()));
  return spec;
}

ModelSpec read_model_spec(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error("{} cannot be read: a model folder needs a config.json{}", path.string(),
                missing_config_hint(directory));
  }
  return parse_model_spec(read_file(path, kConfigLimits.bytes), path.string());
}

}  // namespace zeroth::model
