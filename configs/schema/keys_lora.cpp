#include <algorithm>
#include <cctype>
#include <cmath>

#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

bool is_all_linear(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text == kAllLinear;
}

// Returns the field of layers_pattern, a name or a list of names.
constexpr Field layers_pattern() {
  Field names = null_if_empty<&LoraConfig::layers_pattern>();
  names.type = kNames;
  names.set = [](const Json& value, Config& config) {
    auto& patterns = config.lora.layers_pattern;
    patterns.clear();
    for (const Json& name : value.is_string() ? Json::array({value}) : value) {
      if (name != "") patterns.push_back(name);
    }
  };
  return names;
}

// Returns the field of rank_pattern, whose values are integers.
constexpr Field rank_pattern() {
  Field ranks = field<&LoraConfig::rank_pattern>();
  ranks.type = kIntegerMap;
  return ranks;
}

// Returns the field of init_lora_weights: true, false or a name.
constexpr Field init_lora_weights() {
  return {kChoice,
          [](const Config& config) -> Json {
            const std::string_view name = to_string(config.lora.init);
            return name == "true" || name == "false" ? Json(name == "true") : Json(name);
          },
          [](const Json& value, Config& config) {
            const std::string name = value.is_string() ? value.get<std::string>() : value.dump();
            config.lora.init = parse_enum<LoraConfig::Init>(name).value_or(config.lora.init);
          }};
}

std::vector<ConfigKey> adapter_rows() {
  // "auto" is what the flag says, or the default without it.
  const auto with_flag = [](std::string_view auto_value, std::string_view flag) {
    return RowOptions{.auto_value = auto_value, .flag = flag};
  };
  return {
      section("lora",
              "not in DeepSpeed: the model is frozen, and adapters are trained; {} is enough; "
              "without it: --use_peft",
              kMustEqual),
      honored("lora.r", field<&LoraConfig::r>(), "8", "1..1000000",
              "rank of an adapter's factors; with --use_peft the default is 16",
              with_flag("--lora_r, else the default", "--lora_r")),
      honored("lora.lora_alpha", field<&LoraConfig::alpha>(), "8.0", "> 0",
              "an adapter's result is multiplied by lora_alpha / r; with --use_peft the default is "
              "32",
              with_flag("--lora_alpha, else the default", "--lora_alpha")),
      honored(
          "lora.lora_dropout", field<&LoraConfig::dropout>(), "0.0", "[0, 1)",
          "probability that an element of an adapter's input is 0 in training, but for those of "
          "embeddings; with --use_peft the default is 0.05",
          with_flag("--lora_dropout, else the default", "--lora_dropout")),
      honored("lora.use_rslora", field<&LoraConfig::use_rslora>(), "false", "",
              "the factor is lora_alpha / sqrt(r)",
              with_flag("--use_rslora, else the default", "--use_rslora")),
      honored("lora.target_modules", field<&LoraConfig::target_modules>(), "null", "",
              "modules with adapters: a list of names, which are paths or their ends after a dot; "
              "a string is a regular expression of whole paths, or all-linear: every product but "
              "the head's; null: those that peft chooses for the model's family",
              with_flag("--lora_target_modules, else the default", "--lora_target_modules")),
      honored("lora.exclude_modules", field<&LoraConfig::exclude_modules>(), "null", "",
              "modules without adapters among these: names or a regular expression"),
      honored("lora.layers_to_transform", null_if_empty<&LoraConfig::layers_to_transform>(), "null",
              ">= 0", "layers whose modules have adapters; needs names as target_modules"),
      honored("lora.layers_pattern", layers_pattern(), "null", "",
              "with layers_to_transform: name of the list of layers in a path; null: the first "
              "number of a path is that of its layer"),
      honored("lora.rank_pattern", rank_pattern(), "{}", "1..1000000",
              "r of some modules, by regular expressions of the ends of their paths; the first one "
              "that matches counts"),
      honored("lora.alpha_pattern", field<&LoraConfig::alpha_pattern>(), "{}", "> 0",
              "lora_alpha of some modules, likewise"),
      honored("lora.modules_to_save", null_if_empty<&LoraConfig::modules_to_save>(), "null", "",
              "modules that are trained in full, and saved with the adapter",
              with_flag("--lora_modules_to_save, else the default", "--lora_modules_to_save")),
      honored("lora.bias", field<&LoraConfig::bias>(), "\"none\"",
              "\"none\" | \"all\" | \"lora_only\"",
              "biases that are trained, too: all, or those of modules with adapters"),
      refusing_others(
          honored("lora.init_lora_weights", init_lora_weights(), "true",
                  "true | false | \"gaussian\"",
                  "first factor: true: uniform; gaussian: normal with deviation 1 / r; the second "
                  "one is 0; false: both are uniform; of embeddings the first one is 0, the second "
                  "one normal; false: both are normal"),
          "such a start changes the base's weights, or reads them, and is not supported"),
  };
}

// Returns the keys of an adapter_config.json that say nothing about a training.
std::vector<ConfigKey> file_rows() {
  constexpr std::string_view kMegatron = "concerns Megatron's own layers";
  return {
      no_effect("lora.fan_in_fan_out", kBool, "false", "the model defines the layout of a weight"),
      refusing_others(
          no_effect("lora.peft_type", kString, "\"LORA\"", "there is one kind", "\"LORA\""),
          "other kinds of adapters are not supported"),
      refusing_others(no_effect("lora.task_type", kString, "\"CAUSAL_LM\"", "there is one task",
                                "\"CAUSAL_LM\" | null"),
                      "only causal language models are trained"),
      no_effect("lora.inference_mode", kBool, "true", "finetune trains, whatever it says"),
      no_effect("lora.base_model_name_or_path", kString, "null", "--model is the base"),
      no_effect("lora.revision", kString, "null", "--model is the base"),
      no_effect("lora.peft_version", kString, "null", "nothing depends on it"),
      idle_section("lora.auto_mapping", "", "base_model_class parent_library",
                   "config.json in --model sets the class"),
      no_effect("lora.megatron_core", kString, "\"megatron.core\"", kMegatron,
                "\"megatron.core\" | null"),
      no_effect("lora.qalora_group_size", kInteger, "16", "concerns use_qalora, which is refused"),
  };
}

// Returns a key that has to be off, in any of the ways in which peft's versions write that.
constexpr ConfigKey off(std::string_view name, std::string_view default_value,
                        std::string_view text) {
  return refused(name, default_value, text,
                 default_value == "null"    ? "false | [] | {}"
                 : default_value == "false" ? "null | [] | {}"
                                            : "null | false | []");
}

std::vector<ConfigKey> quantization_rows() {
  constexpr std::string_view kInt8 = "concerns load_in_8bit, which is refused";
  return {
      section("quantization",
              "not in DeepSpeed: the frozen weights of the layers' products are kept in 4 bits "
              "(QLoRA), with the keys of transformers' BitsAndBytesConfig; without it: "
              "--load_in_4bit",
              kMustEqual),
      honored("quantization.load_in_4bit", field<&QuantizationConfig::nf4_weights>(), "false", "",
              "weights are quantized as they are read, or read from files that hold them so",
              {.auto_value = "--load_in_4bit, else the default", .flag = "--load_in_4bit"}),
      honored(
          "quantization.bnb_4bit_quant_type", field<&QuantizationConfig::type>(), "\"nf4\"",
          "\"nf4\"",
          "in a file it has to be given with load_in_4bit: BitsAndBytesConfig's default, fp4, is "
          "not supported",
          {.auto_value = "--bnb_4bit_quant_type, else the default",
           .flag = "--bnb_4bit_quant_type"}),
      honored("quantization.bnb_4bit_use_double_quant", field<&QuantizationConfig::nested_scales>(),
              "false", "", "the scales are quantized, too: 4.13 bits for a weight in place of 4.5",
              {.auto_value = "--use_bnb_nested_quant, else the default",
               .flag = "--use_bnb_nested_quant"}),
      no_effect("quantization.bnb_4bit_compute_dtype", kString, "\"float32\"",
                "products compute in the precision of the run"),
      no_effect("quantization.bnb_4bit_quant_storage", kString, "\"uint8\"",
                "the bytes are the same in any type, and ranks share them"),
      refused("quantization.load_in_8bit", "false",
              "not supported: train with load_in_4bit, or without quantization"),
      refusing_others(no_effect("quantization.llm_int8_skip_modules", kList, "null",
                                "embedding and head are never quantized", "null | []"),
                      "every product of the layers is quantized"),
      no_effect("quantization.llm_int8_threshold", kNumber, "6.0", kInt8),
      no_effect("quantization.llm_int8_enable_fp32_cpu_offload", kBool, "false", kInt8),
      no_effect("quantization.llm_int8_has_fp16_weight", kBool, "false", kInt8),
      refusing_others(no_effect("quantization.quant_method", kString, "\"bitsandbytes\"",
                                "there is one method", "\"bitsandbytes\""),
                      "other methods are not supported"),
  };
}

std::vector<ConfigKey> refused_rows() {
  constexpr std::string_view kStart =
      "not supported: it is about a start that init_lora_weights refuses";
  constexpr std::string_view kOther = "not supported: it changes what an adapter computes";
  return {
      off("lora.use_dora", "false", "not supported: the adapter's norms are not implemented"),
      off("lora.target_parameters", "null",
          "not supported: an adapter is one of a whole module: name it in target_modules"),
      off("lora.trainable_token_indices", "null",
          "not supported: modules_to_save trains all rows of an embedding"),
      off("lora.layer_replication", "null", "not supported: it changes the model's layers"),
      off("lora.lora_bias", "false", "not supported: adapters have no biases of their own"),
      off("lora.ensure_weight_tying", "false",
          "not supported: a module in modules_to_save has a weight of its own"),
      off("lora.loftq_config", "{}", kStart),
      off("lora.corda_config", "null", kStart),
      off("lora.eva_config", "null", kStart),
      off("lora.lora_ga_config", "null", kStart),
      off("lora.alora_invocation_tokens", "null", "not supported: adapters act on every token"),
      off("lora.arrow_config", "null", "not supported: there is one adapter"),
      off("lora.kasa_config", "null", kOther),
      off("lora.monteclora_config", "null", kOther),
      off("lora.velora_config", "null", kOther),
      off("lora.use_bdlora", "null", kOther),
      off("lora.use_qalora", "false", kOther),
      off("lora.megatron_config", "null", "not supported: there are no layers of Megatron"),
  };
}

}  // namespace

void to_json(Json& value, const ModuleNames& names) {
  value = nullptr;
  if (!names.pattern.empty()) {
    value = names.pattern;
  } else if (names.is_set()) {
    value = names.names;
  }
}

void from_json(const Json& value, ModuleNames& names) {
  names = {};
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    names.pattern = is_all_linear(text) ? kAllLinear : text;
    return;
  }
  value.get_to(names.names);
  std::sort(names.names.begin(), names.names.end());
  names.names.erase(std::unique(names.names.begin(), names.names.end()), names.names.end());
}

Json to_value(const PatternValues& member) {
  Json value = Json::object();
  for (const auto& [pattern, number] : member) {
    const bool whole = number == std::floor(number) && std::abs(number) < 1e15;
    value[pattern] = whole ? Json(static_cast<int64_t>(number)) : Json(number);
  }
  return value;
}

void set_member(const Json& value, PatternValues& member) {
  member.clear();
  for (const auto& [pattern, number] : value.items()) {
    member.emplace_back(pattern, number.get<double>());
  }
}

std::vector<ConfigKey> lora_rows() {
  return joined({adapter_rows(), file_rows(), refused_rows(), quantization_rows()});
}

}  // namespace zeroth::configs
