#include "configs/schema/key_rows.h"
#include "tests/configs/support.h"

namespace zeroth::configs::keys_lora_test {
namespace {

// The section with these keys.
std::string lora(const std::string& keys) {
  return fmt::format(R"({{"lora": {{{}}}}})", keys);
}

LoraConfig lora_of(const std::string& keys) {
  return config_of(lora(keys)).lora;
}

// adapter_config.json as peft 0.21.2 saves it.
constexpr char kOfPeft[] = R"(
  "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null,
  "auto_mapping": {"base_model_class": "LlamaForCausalLM", "parent_library": "transformers"},
  "base_model_name_or_path": "meta/llama", "bias": "none", "corda_config": null,
  "ensure_weight_tying": false, "eva_config": null, "exclude_modules": null,
  "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true, "kasa_config": null,
  "layer_replication": null, "layers_pattern": null, "layers_to_transform": null,
  "loftq_config": {}, "lora_alpha": 32, "lora_bias": false, "lora_dropout": 0.05,
  "lora_ga_config": null, "megatron_config": null, "megatron_core": "megatron.core",
  "modules_to_save": null, "monteclora_config": null, "peft_type": "LORA",
  "peft_version": "0.21.2", "qalora_group_size": 16, "r": 4, "rank_pattern": {}, "revision": null,
  "target_modules": ["v_proj", "q_proj"], "target_parameters": null, "task_type": "CAUSAL_LM",
  "trainable_token_indices": null, "use_bdlora": null, "use_dora": false, "use_qalora": false,
  "use_rslora": false, "velora_config": null)";

}  // namespace

TEST_CASE("the keys of adapters are honoured, idle or refused as the table says") {
  for (const ConfigKey& key : lora_rows()) check_row(key);
}

TEST_CASE("every key of peft's adapter_config.json may be pasted into the section") {
  const Resolved resolved = resolve_text(lora(kOfPeft));
  const LoraConfig& config = resolved.config.lora;
  CHECK(config.enabled);
  CHECK(config.r == 4);
  CHECK(config.alpha == 32);
  CHECK(config.dropout == 0.05);
  CHECK(config.target_modules == ModuleNames{.names = {"q_proj", "v_proj"}});
  CHECK(warnings_of(resolved).empty());
  CHECK(has_note(resolved, "lora.base_model_name_or_path \"meta/llama\" has no effect: --model"));
  CHECK_FALSE(has_note(resolved, "lora.task_type"));
}

TEST_CASE("what an adapter cannot have is refused by name, and may be null, false or empty") {
  for (const char* key :
       {"use_dora", "target_parameters", "trainable_token_indices", "layer_replication",
        "lora_bias", "loftq_config", "corda_config", "eva_config", "alora_invocation_tokens",
        "arrow_config", "use_qalora", "kasa_config", "velora_config"}) {
    CAPTURE(key);
    for (const char* off : {"null", "false", "[]", "{}"}) {
      CHECK(complaints_of(lora(fmt::format("\"{}\": {}", key, off))) == "");
    }
    for (const char* on : {"true", "[1]", R"({"a": 1})"}) {
      CHECK(complaints_of(lora(fmt::format("\"{}\": {}", key, on)))
                .find(" is refused: not supported: ") != std::string::npos);
    }
  }
}

TEST_CASE("a start that changes the base's weights is refused, and the message says why") {
  CHECK(complaints_of(lora(R"("init_lora_weights": "pissa")")) ==
        "lora.init_lora_weights: expected true | false | \"gaussian\", found the string "
        "\"pissa\": such a start changes the base's weights, or reads them, and is not supported");
  CHECK(complaints_of(lora(R"("init_lora_weights": 1)"))
            .starts_with("lora.init_lora_weights: expected true | false | \"gaussian\", found 1"));
  CHECK(lora_of(R"("init_lora_weights": true)").init == LoraConfig::Init::kKaiming);
  CHECK(lora_of(R"("init_lora_weights": "gaussian")").init == LoraConfig::Init::kGaussian);
  CHECK(lora_of(R"("init_lora_weights": false)").init == LoraConfig::Init::kRandom);
}

TEST_CASE("an adapter of another kind or for another task is refused") {
  CHECK(complaints_of(lora(R"("peft_type": "IA3")")) ==
        "lora.peft_type: expected \"LORA\", found the string \"IA3\": other kinds of adapters are "
        "not supported");
  CHECK(complaints_of(lora(R"("task_type": "SEQ_CLS")"))
            .ends_with(": only causal language models are trained"));
  CHECK(complaints_of(lora(R"("task_type": null)")) == "");
}

TEST_CASE("modules are a list of names in any order, a regular expression, or all-linear") {
  CHECK(lora_of(R"("target_modules": ["b", "a", "b"])").target_modules ==
        ModuleNames{.names = {"a", "b"}});
  CHECK(lora_of(R"("target_modules": ".*_proj")").target_modules ==
        ModuleNames{.pattern = ".*_proj"});
  CHECK(lora_of(R"("target_modules": "All-Linear")").target_modules ==
        ModuleNames{.pattern = "all-linear"});
  CHECK_FALSE(lora_of(R"("target_modules": null)").target_modules.is_set());
  CHECK(lora_of(R"("exclude_modules": "q_proj")").exclude_modules ==
        ModuleNames{.pattern = "q_proj"});
  CHECK(complaints_of(lora(R"("target_modules": [1])")) ==
        "lora.target_modules: expected a string or a list of names, found the list [1]");
}

TEST_CASE("layers are one or several") {
  CHECK(lora_of(R"("layers_to_transform": 3)").layers_to_transform == std::vector<int64_t>{3});
  const LoraConfig several =
      lora_of(R"("layers_to_transform": [1, 0], "layers_pattern": ["h", "layers"])");
  CHECK(several.layers_to_transform == std::vector<int64_t>{1, 0});
  CHECK(several.layers_pattern == std::vector<std::string>{"h", "layers"});
  CHECK(lora_of(R"("layers_to_transform": 3, "layers_pattern": "h")").layers_pattern ==
        std::vector<std::string>{"h"});
  CHECK(lora_of(R"("layers_pattern": "", "layers_to_transform": [])").layers_pattern.empty());
  CHECK(complaints_of(lora(R"("layers_to_transform": -1)")) ==
        "lora.layers_to_transform: expected an integer or a list of integers >= 0, found -1");
  CHECK(complaints_of(lora(R"("layers_to_transform": "1")")) ==
        "lora.layers_to_transform: expected an integer or a list of integers, found the string "
        "\"1\"");
}

TEST_CASE("patterns keep the file's order, and each value has the key's range") {
  const LoraConfig config = lora_of(R"("rank_pattern": {"q_proj": 2, "_why": "x", "^a\\.b": 4e0},
      "alpha_pattern": {"k": 0.5})");
  CHECK(config.rank_pattern == PatternValues{{"q_proj", 2}, {"^a\\.b", 4}});
  CHECK(config.alpha_pattern == PatternValues{{"k", 0.5}});
  CHECK(complaints_of(lora(R"("rank_pattern": {"q": 0, "v": 2.5, "k": 1})")) ==
        "lora.rank_pattern.q: expected an integer in 1..1000000, found 0\n"
        "lora.rank_pattern.v: expected an integer in 1..1000000, found 2.5");
  CHECK(complaints_of(lora(R"("alpha_pattern": {"q": "x"})")) ==
        "lora.alpha_pattern.q: expected a number > 0, found the string \"x\"");
  CHECK(complaints_of(lora(R"("rank_pattern": 4)")) ==
        "lora.rank_pattern: expected an object of integers, found 4");
}

TEST_CASE("numbers of the section have ranges, and another name is unknown") {
  CHECK(complaints_of(lora(R"("r": 0)")) == "lora.r: expected an integer in 1..1000000, found 0");
  CHECK(complaints_of(lora(R"("lora_alpha": 0)")) ==
        "lora.lora_alpha: expected a number > 0, found 0");
  CHECK(complaints_of(lora(R"("lora_dropout": 1)")) ==
        "lora.lora_dropout: expected a number in [0, 1), found 1");
  CHECK(complaints_of(lora(R"("bias": "some")")) ==
        "lora.bias: expected \"none\" | \"all\" | \"lora_only\", found the string \"some\"");
  CHECK(complaints_of(lora(R"("target_module": "x")")) ==
        "lora.target_module: unknown key; did you mean lora.target_modules?");
}

TEST_CASE("everything about adapters must be equal when a run resumes") {
  for (const char* path : {"lora.r", "lora.bias", "lora.rank_pattern.model.layers.0.mlp"}) {
    CHECK(must_equal_on_resume(path));
    CHECK_FALSE(is_changeable_on_resume(path));
  }
}

}  // namespace zeroth::configs::keys_lora_test
