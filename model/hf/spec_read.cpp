#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "model/hf/config_reader.h"
#include "model/hf/families/decoder.h"
#include "model/hf/model_directory.h"
#include "model/hf/multimodal.h"
#include "model/hf/safetensors.h"
#include "model/spec.h"

namespace zeroth::model {
namespace {

using nlohmann::json;

// Keys that transformers writes and that do not change training.
const std::set<std::string> kIgnoredKeys = {
    // The model's origin and class.
    "_name_or_path", "_commit_hash", "architectures", "auto_map", "model_type", "tokenizer_class",
    "transformers_version", "unsloth_version", "unsloth_fixed",
    // How it runs.
    "_attn_implementation", "_attn_implementation_autoset", "gradient_checkpointing",
    "keys_to_ignore_at_inference", "output_attentions", "output_hidden_states", "return_dict",
    "_sliding_window_pattern", "torchscript", "use_bfloat16", "use_cache", "tf_legacy_loss",
    // How many tensor-parallel ranks trained it, of which only models with slices depend.
    "pretraining_tp",
    // Tokens.
    "bos_token_id", "cls_token_id", "decoder_start_token_id", "eod_token_id", "eos_token_id",
    "n_ctx", "pad_token_id", "prefix", "sep_token_id", "unk_token_id",
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
    "attention_probs_dropout_prob", "classifier_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop",
    "layerdrop",
    // Other forms of weights and layers.
    "pruned_heads", "chunk_size_feed_forward", "is_encoder_decoder", "cross_attention_hidden_size",
    "add_cross_attention", "reorder_and_upcast_attn", "per_layer_config",
    // Mixtures of experts.
    "num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok",
    "moe_intermediate_size",
    // Other attention.
    "attn_logit_softcapping", "final_logit_softcapping", "attention_chunk_size", "no_rope_layers",
    "kv_lora_rank", "q_lora_rank", "alibi", "use_mrope",
    // Other inputs, adapters and layers.
    "vision_config", "audio_config", "text_config", "adapter_attn_dim", "parallel_attn",
    "query_pre_attn_scalar", "clip_qkv", "use_bidirectional_attention", "use_qk_norm",
    "qk_layernorm"};

// Factors of other models: accepted only at 1.
const std::vector<std::string> kUnitFactors = {"logit_scale", "logits_scaling",
                                               "embedding_multiplier", "residual_multiplier",
                                               "attention_multiplier"};

// Returns the padding token, counted from the end if it is negative, as in nn.Embedding.
// A missing key means the family's default, null none.
int64_t read_padding_token(ConfigReader& config, const Family& family, int64_t vocab_size) {
  constexpr const char* kKey = "pad_token_id";
  const int64_t fallback = family.padding_token.value_or(-1);
  if (!config.has(kKey)) return fallback < vocab_size ? fallback : -1;
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

void read_common(ConfigReader& config, const Family& family, ModelSpec& spec) {
  spec.vocab_size = config.size("vocab_size", {}, kMaxVocabSize);
  if (family.pads) spec.padding_token = read_padding_token(config, family, spec.vocab_size);
  spec.initializer_range = config.number("initializer_range", spec.initializer_range);
  if (spec.initializer_range < 0) config.add_error("initializer_range", "is negative");
  spec.dtype = config.text("torch_dtype", "");
  spec.dtype = config.text("dtype", spec.dtype);
  spec.quantization = read_quantization(config, spec);
  for (const std::string& key : kUnsupportedKeys)
    if (!config.was_read(key)) config.reject(key);
  for (const std::string& key : kUnitFactors)
    if (!config.was_read(key)) config.require(key, 1.0);
  config.require("is_causal", true);
}

// Reads what the config.json of a multimodal model says beside text_config. Transformers ties the
// head by the outer key alone.
void read_multimodal(ConfigReader& whole, const MultimodalFamily& family, ModelSpec& spec) {
  spec.tie_word_embeddings = whole.flag("tie_word_embeddings", family.tied);
  spec.dtype = whole.text("torch_dtype", spec.dtype);
  spec.dtype = whole.text("dtype", spec.dtype);
  whole.reject("quantization_config");
}

[[noreturn]] void reject_family(const ModelSpec& spec, const ConfigReader& whole,
                                const std::string& origin) {
  std::string found = fmt::format("model_type is \"{}\"", shortened(spec.family));
  if (spec.multimodal)
    found = fmt::format("{} in text_config of \"{}\"", found, spec.multimodal->model_type);
  if (spec.family.empty() && !whole.errors().empty())
    found = whole.errors().front() + ": add it, as \"architectures\" says";
  const std::vector<std::string_view> names = family_names();
  const std::string_view near = nearest_name(spec.family, names);
  throw Error(
      "{}: {}; supported are {}{}; for another kind of model see examples/custom_model, which "
      "builds one of blocks",
      origin, found, fmt::join(names, ", "),
      near.empty() ? "" : fmt::format(", of which {} has the nearest name", near));
}

}  // namespace

ModelSpec parse_model_spec(const std::string& text, const std::string& origin) {
  const json object = parse_json(text, {.name = origin, .limits = kConfigLimits});
  if (!object.is_object()) throw Error("{} is not a JSON object", origin);
  ConfigReader whole(object);
  ModelSpec spec;
  spec.family = whole.text("model_type");
  const MultimodalFamily* const multimodal = find_multimodal_family(spec.family);
  const bool has_text =
      multimodal != nullptr && object.contains("text_config") && object["text_config"].is_object();
  if (multimodal != nullptr && !has_text) throw Error("{}: text_config is missing", origin);
  ConfigReader config(has_text ? object["text_config"] : object, has_text ? "text_config." : "");
  bool is_known = true;
  if (has_text) {
    spec.multimodal = {.model_type = spec.family};
    const auto& known = multimodal->text_families;
    spec.family = config.text("model_type", std::string(known.front()));
    is_known = std::ranges::find(known, spec.family) != known.end();
  }
  const Family* const family = find_family(spec.family);
  if (family == nullptr || !is_known) reject_family(spec, whole, origin);
  family->read(config, spec);
  read_common(config, *family, spec);
  if (has_text) read_multimodal(whole, *multimodal, spec);
  config.add(whole);
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
  ModelSpec spec = parse_model_spec(read_file(path, kConfigLimits.bytes), path.string());
  if (spec.multimodal && has_weights(directory)) find_other_tensors(directory, spec);
  return spec;
}

}  // namespace zeroth::model
