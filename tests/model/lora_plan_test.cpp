#include "model/hf/lora_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/blocks/build_blocks.h"
#include "tests/model/materialize.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::lora_plan_test {
namespace {

using configs::LoraConfig;
using configs::ModuleNames;
using Names = std::vector<std::string>;

ModelSpec spec_of(const std::string& name) {
  return read_model_spec(fixture(name));
}

LoraConfig targets(const Names& names) {
  LoraConfig config;
  config.target_modules.names = names;
  return config;
}

LoraConfig matching(const std::string& pattern) {
  LoraConfig config;
  config.target_modules.pattern = pattern;
  return config;
}

std::set<std::string> modules_of(const LoraPlan& plan) {
  std::set<std::string> names;
  for (const auto& [name, module] : plan.modules) names.insert(name);
  return names;
}

std::string refusal(const std::string& name, const LoraConfig& config) {
  return message_of<Error>([&] { plan_lora(spec_of(name), config); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

}  // namespace

TEST_CASE("the first pattern that matches the end of a path sets rank and alpha") {
  const Names paths = {
      "foo", "bar", "module.foo", "module.foobar", "module.module.foo", "module.module.barfoo"};
  const std::pair<configs::PatternValues, std::vector<int64_t>> rows[] = {
      {{}, {8, 8, 8, 8, 8, 8}},
      {{{"bla", 4}, {"oof", 6}}, {8, 8, 8, 8, 8, 8}},
      {{{"foo", 16}}, {16, 8, 16, 8, 16, 8}},
      {{{"^foo", 16}}, {16, 8, 8, 8, 8, 8}},
      {{{"^module.foo", 16}}, {8, 8, 16, 8, 8, 8}},
      {{{"module.module.foo", 16}}, {8, 8, 8, 8, 16, 8}},
      {{{"^module.module.foo", 16}}, {8, 8, 8, 8, 16, 8}},
      {{{"module.foo", 16}}, {8, 8, 16, 8, 16, 8}},
      {{{"^module.foo", 16}, {"^module.module.foo", 24}}, {8, 8, 16, 8, 24, 8}},
      {{{"^foo", 16}, {"^module.foo", 24}}, {16, 8, 24, 8, 8, 8}},
      {{{"^foo", 16}, {"module.module.foo", 24}}, {16, 8, 8, 8, 24, 8}},
      {{{"^foo", 16}, {"^module.foo", 24}, {"^module.module.foo", 32}}, {16, 8, 24, 8, 32, 8}},
      {{{"^module.module.foo", 32}, {"^module.foo", 24}, {"^foo", 16}}, {16, 8, 24, 8, 32, 8}},
      {{{"foo", 16}, {"module.foo", 24}}, {16, 8, 16, 8, 16, 8}},  // the order counts
      {{{"module.foo", 24}, {"foo", 16}}, {16, 8, 24, 8, 24, 8}},
      {{{"bar|foo", 4}}, {4, 4, 4, 8, 4, 8}},
  };
  for (const auto& [pattern, ranks] : rows) {
    CAPTURE(&ranks);
    LoraConfig config;
    config.rank_pattern = config.alpha_pattern = pattern;
    for (size_t i = 0; i < paths.size(); ++i)
      CHECK(lora_module(paths[i], config) == LoraModule{ranks[i], 1.0});
    config.alpha_pattern.clear();
    for (size_t i = 0; i < paths.size(); ++i)
      CHECK(lora_module(paths[i], config).scale == 8.0 / static_cast<double>(ranks[i]));
  }
}

TEST_CASE("scales are alpha / r, with rsLoRA alpha / sqrt(r), as peft computes them") {
  LoraConfig config;
  config.r = 4;
  CHECK(lora_module("a.q_proj", config).scale == 2.0);
  config.use_rslora = true;
  CHECK(lora_module("a.q_proj", config).scale == 4.0);
  config.rank_pattern = {{"q_proj", 2}};
  config.alpha_pattern = {{"q_proj", 32}};
  CHECK(lora_module("a.q_proj", config).scale == doctest::Approx(22.627417).epsilon(1e-7));
  CHECK(lora_module("a.v_proj", config) == LoraModule{4, 4.0});
}

TEST_CASE("families have the usual targets of peft") {
  const std::set<std::string> qv = {"layers.0.attention.q", "layers.0.attention.v",
                                    "layers.1.attention.q", "layers.1.attention.v"};
  for (const char* name : {"llama", "mistral_window", "qwen2", "qwen3_tied"}) {
    const LoraPlan plan = plan_lora(spec_of(name), {});
    CHECK(modules_of(plan) == qv);
    CHECK(plan.modules.at("layers.0.attention.q") == LoraModule{8, 1.0});
    CHECK(plan.trained.empty());
    CHECK_FALSE(plan.unties_head);
    CHECK(resolved_targets(spec_of(name), {}) == ModuleNames{{}, {"q_proj", "v_proj"}});
  }
  CHECK(modules_of(plan_lora(spec_of("gpt2"), {})) ==
        std::set<std::string>{"layers.0.attention.qkv", "layers.1.attention.qkv"});
  ModelSpec other = spec_of("llama");
  other.family = "seed_oss";
  const std::string message = message_of<Error>([&] { plan_lora(other, {}); });
  CHECK(has(message, "lora.target_modules is not set, and a seed_oss model has no usual ones"));
  CHECK(has(message, "model.layers.0.self_attn.q_proj"));
}

TEST_CASE("routers and experts have no adapters, and say so; shared experts have") {
  for (const char* target : {"experts", "gate"}) {
    const std::string said = refusal("qwen2_moe", targets({target}));
    CHECK(has(said, std::string("lora.target_modules selects model.layers.0.mlp.") + target));
    CHECK(has(said, "but only products, embeddings and the head have adapters"));
  }
  CHECK(modules_of(plan_lora(spec_of("qwen2_moe"), targets({"up_proj"}))) ==
        std::set<std::string>{"layers.0.mlp.shared.up", "layers.1.mlp.up"});
  const LoraPlan saved = plan_lora(spec_of("glm4_moe"), [] {
    LoraConfig config = targets({"q_proj"});
    config.modules_to_save = {"gate"};
    return config;
  }());
  CHECK(saved.trained == std::set<std::string>{"layers.1.mlp.router.weight"});
}

TEST_CASE("of an activation what is trained can be saved beside adapters") {
  LoraConfig config = targets({"q_proj"});
  config.modules_to_save = {"layers.1.mlp.act_fn"};
  CHECK(
      plan_lora(spec_of("apertus"), config).trained ==
      std::set<std::string>{"layers.1.mlp.activation.alpha_n", "layers.1.mlp.activation.alpha_p"});
}

TEST_CASE("all-linear selects every product but the head's") {
  const LoraConfig config = matching("all-linear");
  const LoraPlan llama = plan_lora(spec_of("llama"), config);
  std::set<std::string> expected;
  for (const char* layer : {"layers.0.", "layers.1."}) {
    for (const char* name : {"attention.q", "attention.k", "attention.v", "attention.o", "mlp.gate",
                             "mlp.up", "mlp.down"})
      expected.insert(std::string(layer) + name);
  }
  CHECK(modules_of(llama) == expected);
  const ModuleNames saved = resolved_targets(spec_of("gpt2"), config);
  CHECK(saved.pattern.empty());
  CHECK(saved.names == Names{"transformer.h.0.attn.c_attn", "transformer.h.0.attn.c_proj",
                             "transformer.h.0.mlp.c_fc", "transformer.h.0.mlp.c_proj",
                             "transformer.h.1.attn.c_attn", "transformer.h.1.attn.c_proj",
                             "transformer.h.1.mlp.c_fc", "transformer.h.1.mlp.c_proj"});
  CHECK(plan_lora(spec_of("gpt2"), config).modules.size() == 8);
  ModelSpec deep = spec_of("llama");
  deep.num_layers = 12;
  deep.layers.resize(12);
  CHECK(resolved_targets(deep, config).names ==
        Names{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"});
  CHECK(plan_lora(deep, config).modules.size() == 12 * 7);
}

TEST_CASE("a plan holds layers, patterns and the embedding") {
  LoraConfig config = targets({"q_proj", "down_proj", "embed_tokens"});
  config.layers_to_transform = {1};
  CHECK(modules_of(plan_lora(spec_of("llama"), config)) ==
        std::set<std::string>{"layers.1.attention.q", "layers.1.mlp.down"});
  config.layers_to_transform = {};
  config.rank_pattern = {{R"(0\..*q_proj)", 2}};
  config.alpha_pattern = {{"down_proj", 32}};
  const LoraPlan plan = plan_lora(spec_of("qwen3_tied"), config);
  CHECK(plan.modules.at("layers.0.attention.q") == LoraModule{2, 4.0});
  CHECK(plan.modules.at("layers.1.attention.q") == LoraModule{8, 1.0});
  CHECK(plan.modules.at("layers.1.mlp.down") == LoraModule{8, 4.0});
  CHECK(plan.modules.at("embedding") == LoraModule{8, 1.0});
  CHECK_FALSE(plan.unties_head);
}

TEST_CASE("modules to save are trained in full, and without an adapter") {
  LoraConfig config = targets({"q_proj", "up_proj"});
  config.modules_to_save = {"lm_head", "layers.1.mlp", "norm"};
  const LoraPlan plan = plan_lora(spec_of("llama"), config);
  CHECK(modules_of(plan) ==
        std::set<std::string>{"layers.0.attention.q", "layers.0.mlp.up", "layers.1.attention.q"});
  // peft compares ends of paths without a dot before them: "norm" names every norm.
  CHECK(plan.trained ==
        std::set<std::string>{"head.weight", "layers.1.mlp.gate.weight", "layers.1.mlp.up.weight",
                              "layers.1.mlp.down.weight", "head.norm.weight",
                              "layers.0.attention_norm.weight", "layers.0.mlp_norm.weight",
                              "layers.1.attention_norm.weight", "layers.1.mlp_norm.weight"});
  CHECK_FALSE(plan.unties_head);
  config.modules_to_save = {"wpe", "ln_f"};
  config.target_modules = {};
  CHECK(plan_lora(spec_of("gpt2"), config).trained ==
        std::set<std::string>{"embedding.positions", "head.norm.weight", "head.norm.bias"});
}

TEST_CASE("head and embedding of a tied model become two when one is trained") {
  const std::pair<Names, std::set<std::string>> rows[] = {
      {{"lm_head"}, {"head.weight"}},
      {{"embed_tokens"}, {"embedding.weight"}},
      {{"lm_head", "embed_tokens"}, {"head.weight", "embedding.weight"}}};
  for (const auto& [names, trained] : rows) {
    LoraConfig config;
    config.modules_to_save = names;
    const LoraPlan plan = plan_lora(spec_of("qwen3_tied"), config);
    CHECK(plan.trained == trained);
    CHECK(plan.unties_head);
  }
}

TEST_CASE("biases of all modules or of those with adapters are trained") {
  LoraConfig config;
  config.bias = LoraConfig::Bias::kLoraOnly;
  CHECK(plan_lora(spec_of("gpt2"), config).trained ==
        std::set<std::string>{"layers.0.attention.qkv.bias", "layers.1.attention.qkv.bias"});
  CHECK(plan_lora(spec_of("llama"), config).trained.empty());
  config.bias = LoraConfig::Bias::kAll;
  const std::set<std::string> all = plan_lora(spec_of("gpt2"), config).trained;
  CHECK(all.size() == 2 * 6 + 1);  // four products and two norms of a layer, and the last norm
  CHECK(all.contains("head.norm.bias"));
}

TEST_CASE("modules that cannot have an adapter are refused by name") {
  CHECK(has(refusal("llama", targets({"norm"})), "selects model.norm, but only products"));
  CHECK(has(refusal("llama", targets({"mlp"})),
            "selects model.layers.0.mlp, model.layers.1.mlp, but only products, embeddings"));
  CHECK(has(refusal("llama", matching(R"(.*\.mlp\..*)")), "model.layers.0.mlp.act_fn"));
  CHECK(has(refusal("gpt2", matching(".*")), " and "));
}

TEST_CASE("tables and the head have adapters when they are named") {
  const auto modules = plan_lora(spec_of("gpt2"), targets({"wte", "wpe", "lm_head"})).modules;
  CHECK(modules.size() == 3);
  for (const char* name : {"embedding", "embedding.positions", "head"})
    CHECK(modules.contains(name));
}

TEST_CASE("one error lists every key that is malformed or selects nothing") {
  LoraConfig config = targets({"q_prj"});
  config.r = 0;
  config.alpha = std::numeric_limits<double>::infinity();
  config.dropout = 1;
  config.rank_pattern = {{"q_proj", 1.5}, {"(", 4}};
  config.alpha_pattern = {{"x", std::nan("")}};
  config.exclude_modules.names = {"visual"};
  config.layers_to_transform = {2, -1};
  config.modules_to_save = {"score", ""};
  const std::string message = refusal("llama", config);
  CHECK(
      message.starts_with("section lora does not fit this llama model:\n  lora.r is 0, expected"));
  for (const char* part :
       {"\n  lora.lora_alpha is inf", "\n  lora.lora_dropout is 1, expected 0 <= p < 1",
        "\n  lora.rank_pattern.q_proj is 1.5", "\n  lora.rank_pattern: regular expression '('",
        "\n  lora.alpha_pattern.x is nan", "\n  lora.exclude_modules visual excludes no module",
        "lora.layers_to_transform has 2, but the layers are 0 to 1", "has -1, but",
        "\n  lora.target_modules q_prj selects no module of lora.layers_to_transform; products of",
        "\n  lora.modules_to_save 'score' is the end of no path", "model.embed_tokens, lm_head",
        "\n  lora.modules_to_save '' is the end of no path"}) {
    CHECK_MESSAGE(has(message, part), part << " in " << message);
  }
}

TEST_CASE("keys that contradict each other are refused") {
  LoraConfig config = matching("all-linear");
  config.layers_to_transform = {0};
  config.layers_pattern = {"layers"};
  const std::string message = refusal("llama", config);
  CHECK(has(message,
            "lora.layers_to_transform cannot be used with lora.target_modules 'all-linear'"));
  CHECK(has(message, "lora.layers_pattern cannot be used with"));
  config = targets({"q_proj"});
  config.layers_pattern = {"layers"};
  CHECK(has(refusal("llama", config), "lora.layers_pattern has no effect without"));
  config = targets({"q_proj"});
  config.modules_to_save = {"proj"};
  CHECK(has(refusal("llama", config), "'proj' is the end of a path with adapters: model.layers.0"));
  config.modules_to_save = {"self_attn"};
  CHECK(
      has(refusal("llama", config), "selects only modules of exclude_modules or modules_to_save"));
  config = targets({"q_proj"});
  config.rank_pattern = {{"v_proj", 4}};
  CHECK(has(refusal("llama", config), "lora.rank_pattern: 'v_proj' matches no module with an"));
  config = matching("(.|..)+[A-Z]");
  CHECK(has(refusal("llama", config), "takes too many steps"));
  config.target_modules.pattern = "(";
  CHECK(has(refusal("llama", config), "lora.target_modules: regular expression '(' is invalid"));
  CHECK_FALSE(has(refusal("llama", config), "selects no module"));
}

}  // namespace zeroth::model::lora_plan_test
