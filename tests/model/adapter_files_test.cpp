// The fixtures are adapters of peft 0.21.2; of some, only the file's header is here.
#include "model/hf/adapter_files.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json/json.h"
#include "model/hf/safetensors_writer.h"
#include "tests/model/materialize.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::adapter_files_test {
namespace {

namespace fs = std::filesystem;

using configs::LoraConfig;
using nlohmann::json;
using torch::Tensor;
using Stored = std::map<std::string, Tensor>;

const std::vector<std::string> kAdapters = {
    "llama/lora_default", "llama/lora_all_linear", "llama/lora_bias_patterns", "llama/lora_head",
    "gpt2/lora_default",  "gpt2/lora_all_linear",  "gpt2/lora_bias_patterns"};

fs::path directory_of(const std::string& adapter) {
  return fixture("adapters/" + adapter);
}

ModelSpec spec_of(const std::string& adapter) {
  return read_model_spec(directory_of(adapter).parent_path());
}

LoraPlan plan_of(const std::string& adapter) {
  return plan_lora(spec_of(adapter), read_adapter_config(directory_of(adapter)).lora);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

json sorted_targets(const std::string& text) {
  json object = json(parse_trusted_json(text));
  json& targets = object["target_modules"];
  if (targets.is_array()) std::sort(targets.begin(), targets.end());
  return object;
}

// Reads a file that has these keys beside those of a plain adapter.
AdapterConfig read(const json& keys) {
  const TempFolder directory;
  json object = {{"peft_type", "LORA"}, {"r", 4}, {"target_modules", {"q_proj"}}};
  object.update(keys);
  directory.write(kAdapterConfigFile, object.dump());
  return read_adapter_config(directory.path());
}

std::string refusal(const json& keys) {
  return message_of<Error>([&] { read(keys); });
}

// Outputs and inputs of a product of the fixtures' models.
std::pair<int64_t, int64_t> product_sizes(const ModelSpec& spec, const std::string& module) {
  const std::string name = module.substr(module.rfind('.') + 1);
  const int64_t hidden = spec.hidden_size, kv = spec.num_kv_heads * spec.head_dim;
  if (name == "qkv") return {3 * hidden, hidden};
  if (name == "k" || name == "v") return {kv, hidden};
  if (name == "gate" || name == "up") return {spec.intermediate_size, hidden};
  if (name == "down") return {hidden, spec.intermediate_size};
  return {hidden, hidden};
}

// The parameters of an adapter, not in the order of their names.
std::vector<PlannedTensor> parameters_of(const ModelSpec& spec, const LoraPlan& plan) {
  std::vector<PlannedTensor> parameters;
  for (const auto& [module, adapter] : plan.modules) {
    const auto [out, in] = product_sizes(spec, module);
    parameters.push_back({module + ".lora_B", {out, adapter.r}});
    parameters.push_back({module + ".lora_A", {adapter.r, in}});
  }
  for (const std::string& name : plan.trained) {
    const auto sizes = product_sizes(spec, name.substr(0, name.rfind('.')));
    parameters.push_back({name, {name.ends_with(".bias") ? sizes.first : spec.vocab_size}});
    if (name == "head.weight") parameters.back().shape.push_back(spec.hidden_size);
  }
  return parameters;
}

void save(const fs::path& directory, const Stored& tensors,
          torch::ScalarType dtype = torch::kFloat32) {
  std::vector<PlannedTensor> plan;
  for (const auto& [name, tensor] : tensors) plan.push_back({name, tensor.sizes().vec()});
  SafetensorsWriter writer(directory / kAdapterWeightsFile, dtype, plan);
  for (const auto& [name, tensor] : tensors) writer.write(name, tensor);
  writer.finish();
}

Tensor read_full(WeightSource& source, const PlannedTensor& parameter) {
  source.check(parameter.name, parameter.shape);
  const TensorSlice all = TensorSlice::full(parameter.shape);
  Tensor out = torch::empty({all.elements()});
  source.read({parameter.name, all}, out);
  return out.view(parameter.shape);
}

}  // namespace

TEST_CASE("adapter_config.json is written as peft writes it") {
  for (const std::string& name : kAdapters) {
    CAPTURE(name);
    const std::string expected = read_text(directory_of(name) / kAdapterConfigFile);
    const AdapterConfig config = read_adapter_config(directory_of(name));
    CHECK(config.lora.enabled);
    const std::string text = adapter_config_text(spec_of(name), config);
    CHECK(sorted_targets(text) == sorted_targets(expected));
    CHECK(text.size() == expected.size());
    // All but the order of target_modules is equal to the byte.
    const auto lines_before_targets = [](const std::string& file) {
      return file.substr(0, file.find("\"target_modules\""));
    };
    CHECK(lines_before_targets(text) == lines_before_targets(expected));
    const auto lines_after_targets = [](const std::string& file) {
      return file.substr(file.find("\"target_parameters\""));
    };
    CHECK(lines_after_targets(text) == lines_after_targets(expected));
  }
}

TEST_CASE("every setting survives writing and reading") {
  AdapterConfig config;
  LoraConfig& lora = config.lora;
  lora.enabled = true;
  lora.r = 3;
  lora.alpha = 0.5;
  lora.use_rslora = true;
  lora.dropout = 0.05;
  lora.target_modules.names = {"q_proj", "v_proj"};
  lora.exclude_modules.pattern = ".*\\.0\\..*";
  lora.layers_to_transform = {0, 1};
  lora.layers_pattern = {"layers"};
  lora.rank_pattern = {{"z", 2}, {"a", 4}};  // the order counts
  lora.alpha_pattern = {{"q_proj", 2.5}};
  lora.modules_to_save = {"lm_head"};
  lora.bias = LoraConfig::Bias::kAll;
  lora.init = LoraConfig::Init::kGaussian;
  config.base_model = "org/mod\u00e9le";
  const ModelSpec spec = spec_of("llama/lora_default");
  const auto reread = [&] {
    const TempFolder directory;
    directory.write(kAdapterConfigFile, adapter_config_text(spec, config));
    CHECK(has_adapter(directory.path()));
    return read_adapter_config(directory.path());
  };
  const auto survives = [&] {
    return adapter_config_text(spec, reread()) == adapter_config_text(spec, config);
  };
  CHECK(survives());
  CHECK(reread().base_model == config.base_model);
  CHECK(reread().lora.enabled);
  CHECK(reread().lora.rank_pattern == lora.rank_pattern);
  CHECK(reread().lora.dropout == 0.05);
  lora.target_modules = {"all-linear", {}};
  CHECK(reread().lora.target_modules.names.size() == 14);
  lora.target_modules = {".*q_proj", {}};
  lora.exclude_modules = {{}, {"k_proj"}};
  lora.init = LoraConfig::Init::kRandom;
  lora.bias = LoraConfig::Bias::kLoraOnly;
  CHECK(survives());
  CHECK(reread().lora.exclude_modules == lora.exclude_modules);
  CHECK(reread().lora.init == lora.init);
  CHECK(reread().lora.bias == lora.bias);
  CHECK_FALSE(has_adapter(fixture("llama")));
}

TEST_CASE("files of other versions of peft are read") {
  const LoraConfig defaults = read({{"r", nullptr}, {"target_modules", nullptr}}).lora;
  CHECK(defaults.r == 8);
  CHECK(defaults.alpha == 8);
  CHECK_FALSE(defaults.target_modules.is_set());
  const LoraConfig lora = read({{"a_key_of_tomorrow", {1, 2}},
                                {"use_dora", false},
                                {"loftq_config", json::object()},
                                {"target_parameters", json::array()},
                                {"task_type", nullptr},
                                {"fan_in_fan_out", true},
                                {"layers_to_transform", 1},
                                {"layers_pattern", "layers"},
                                {"lora_alpha", 16.5},
                                {"inference_mode", false},
                                {"megatron_core", "megatron.core"}})
                              .lora;
  CHECK(lora.layers_to_transform == std::vector<int64_t>{1});
  CHECK(lora.layers_pattern == std::vector<std::string>{"layers"});
  CHECK(lora.alpha == 16.5);
  CHECK(read({{"layers_pattern", ""}}).lora.layers_pattern.empty());
  CHECK(read({{"target_modules", ".*q_proj"}}).lora.target_modules.pattern == ".*q_proj");
}

TEST_CASE("values that change what an adapter is are refused by name") {
  const std::pair<json, const char*> rows[] = {
      {{{"peft_type", "IA3"}}, "peft_type: expected \"LORA\", found the string \"IA3\""},
      {{{"peft_type", nullptr}}, "peft_type is missing"},
      {{{"task_type", "SEQ_CLS"}}, "task_type: expected \"CAUSAL_LM\""},
      {{{"use_dora", true}}, "use_dora: true is refused"},
      {{{"use_dora", true}}, "Merge the adapter in Python"},
      {{{"lora_bias", true}}, "lora_bias: true is refused"},
      {{{"target_parameters", {"experts"}}}, "target_parameters: [\"experts\"] is refused"},
      {{{"layer_replication", {{0, 2}}}}, "layer_replication: [[0,2]] is refused"},
      {{{"alora_invocation_tokens", {1}}}, "alora_invocation_tokens: [1] is refused"},
      {{{"trainable_token_indices", {1}}}, "trainable_token_indices: [1] is refused"},
      {{{"eva_config", {{"rho", 2.0}}}}, "eva_config: {\"rho\":2.0} is refused"},
      {{{"init_lora_weights", "pissa"}}, "init_lora_weights: expected true | false"},
      {{{"init_lora_weights", 3}}, "init_lora_weights: expected true | false"},
      {{{"r", 0}}, "r: expected an integer in 1..1000000, found 0"},
      {{{"r", "8"}}, "r: expected an integer, found the string \"8\""},
      {{{"r", "auto"}}, "r: \"auto\" has no meaning in the files of an adapter"},
      {{{"bias", "some"}}, "bias: expected \"none\" | \"all\" | \"lora_only\""},
      {{{"target_modules", json::array()}}, "target_modules: selects no module"},
      {{{"target_modules", {1}}}, "target_modules: expected"},
      {{{"modules_to_save", "lm_head"}}, "modules_to_save: expected a list of names"},
      {{{"layers_to_transform", {0.5}}}, "layers_to_transform: expected"},
      {{{"rank_pattern", {{"a", "b"}}}}, "rank_pattern"},
      {{{"fan_in_fan_out", 1}}, "fan_in_fan_out: expected true or false, found 1"}};
  for (const auto& [keys, part] : rows) {
    const std::string message = refusal(keys);
    CHECK_MESSAGE(has(message, part), message);
    CHECK(has(message, kAdapterConfigFile));
  }
  const std::string both = refusal({{"use_dora", true}, {"use_qalora", true}});
  CHECK(has(both, "use_dora: true"));
  CHECK(has(both, "use_qalora: true"));
  const TempFolder directory;
  directory.write(kAdapterConfigFile, "[]");
  CHECK(
      has(message_of<Error>([&] { read_adapter_config(directory.path()); }), "not a JSON object"));
}

TEST_CASE("tensors have the names of peft") {
  const ModelSpec llama = spec_of("llama/lora_default");
  const LoraPlan plan = {.modules = {{"embedding", {4, 1}}, {"layers.0.attention.q", {4, 1}}},
                         .trained = {}};
  const auto name = [&](const char* canonical) {
    return adapter_tensor_name(llama, plan, canonical);
  };
  CHECK(name("layers.0.attention.q.lora_A") ==
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  CHECK(name("embedding.lora_A") == "base_model.model.model.embed_tokens.lora_embedding_A");
  CHECK(name("embedding.lora_B") == "base_model.model.model.embed_tokens.lora_embedding_B");
  CHECK(name("layers.0.attention.q.bias") ==
        "base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias");
  CHECK(name("layers.1.attention.q.bias") ==
        "base_model.model.model.layers.1.self_attn.q_proj.bias");
  CHECK(name("head.weight") == "base_model.model.lm_head.weight");
  CHECK(name("head.lora_B") == "base_model.model.lm_head.lora_B.weight");
  CHECK(name("embedding.weight") == "base_model.model.model.embed_tokens.base_layer.weight");
  const ModelSpec gpt2 = spec_of("gpt2/lora_default");
  CHECK(adapter_tensor_name(gpt2, plan, "embedding.positions") ==
        "base_model.model.transformer.wpe.weight");
  CHECK(adapter_tensor_name(gpt2, {}, "embedding.positions.lora_A") ==
        "base_model.model.transformer.wpe.lora_embedding_A");
  CHECK(adapter_tensor_name(gpt2, {}, "embedding.positions") ==
        "base_model.model.transformer.wpe.weight");
}

TEST_CASE("files have the headers of peft, to the byte") {
  for (const std::string& name : kAdapters) {
    CAPTURE(name);
    const ModelSpec spec = spec_of(name);
    const LoraPlan plan = plan_of(name);
    const fs::path full = directory_of(name) / kAdapterWeightsFile;
    const std::string expected =
        read_text(fs::exists(full) ? full : directory_of(name) / "adapter_model.header");
    const ModelLayout layout = plan_adapter(spec, plan, parameters_of(spec, plan));
    REQUIRE(layout.files.size() == 1);
    const ModelLayout::ShardFile& file = layout.files.front();
    CHECK(file.name == kAdapterWeightsFile);
    CHECK(file.layout.header == expected.substr(0, file.layout.header.size()));
    if (fs::exists(full)) CHECK(file.layout.size == std::ssize(expected));
    for (const auto& [canonical, locations] : layout.locations) {
      CHECK(locations.at(0).tensor.name == adapter_tensor_name(spec, plan, canonical));
      CHECK(locations.at(0).offset == file.layout.offsets.at(locations.at(0).tensor.name));
    }
  }
}

TEST_CASE("values of an adapter are read, in full and in part") {
  for (const char* name : {"llama/lora_default", "gpt2/lora_bias_patterns"}) {
    const ModelSpec spec = spec_of(name);
    const LoraPlan plan = plan_of(name);
    const Stored stored = load_tensors(directory_of(name) / kAdapterWeightsFile);
    const auto source = open_adapter(directory_of(name), spec, plan);
    const std::vector<PlannedTensor> parameters = parameters_of(spec, plan);
    CHECK(parameters.size() == stored.size());
    for (const PlannedTensor& parameter : parameters) {
      const Tensor& expected = stored.at(adapter_tensor_name(spec, plan, parameter.name));
      CHECK(torch::equal(read_full(*source, parameter), expected));
      if (expected.dim() != 2 || expected.size(0) < 4) continue;
      Tensor part = torch::empty({3});  // of the second column
      source->read({parameter.name, {parameter.shape, {0, 1}, {parameter.shape[0], 1}}, 1}, part);
      CHECK(torch::equal(part, expected.select(1, 1).narrow(0, 1, 3)));
    }
  }
}

TEST_CASE("adapters in 16 bits, and an embedding's with its table, are read") {
  const ModelSpec spec = spec_of("llama/lora_default");
  const LoraPlan plan = {.modules = {{"embedding", {4, 1}}}, .trained = {}};
  const std::string prefix = "base_model.model.model.embed_tokens.";
  const Tensor a = torch::randn({4, 512}), b = torch::randn({64, 4});
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    const TempFolder directory;
    save(directory.path(),
         {{prefix + "lora_embedding_A", a},
          {prefix + "lora_embedding_B", b},
          {prefix + "base_layer.weight", torch::zeros({512, 64})}},
         dtype);
    const auto source = open_adapter(directory.path(), spec, plan);
    CHECK(torch::equal(read_full(*source, {"embedding.lora_A", {4, 512}}),
                       a.to(dtype).to(torch::kFloat)));
    CHECK(torch::equal(read_full(*source, {"embedding.lora_B", {64, 4}}),
                       b.to(dtype).to(torch::kFloat)));
  }
}

TEST_CASE("a table that an adapter's file repeats has the values of the base, to its rounding") {
  const ModelSpec spec = spec_of("llama/lora_default");
  const LoraPlan plan = {.modules = {{"embedding", {4, 1}}, {"head", {4, 1}}}, .trained = {}};
  RandomSource base(spec, /*seed=*/1);
  const Tensor table = read_full(base, {"embedding.weight", {512, 64}});
  const Tensor head = read_full(base, {"head.weight", {512, 64}});
  const std::string tokens = "base_model.model.model.embed_tokens.base_layer.weight",
                    projection = "base_model.model.lm_head.base_layer.weight";
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    const TempFolder directory;
    save(directory.path(), {{tokens, table}, {projection, head}}, dtype);
    CHECK_NOTHROW(check_base_tables(directory.path(), spec, plan, base));
    save(directory.path(), {{tokens, table.to(torch::kHalf)}});  // widened by peft
    CHECK_NOTHROW(check_base_tables(directory.path(), spec, plan, base));
    save(directory.path(), {{tokens, table}, {projection, table}}, dtype);
    const std::string message =
        message_of<Error>([&] { check_base_tables(directory.path(), spec, plan, base); });
    CHECK(has(message, projection));
    CHECK(has(message, "other values than the base model"));
    save(directory.path(), {{tokens, table.narrow(0, 0, 500)}}, dtype);
    CHECK(has(message_of<Error>([&] { check_base_tables(directory.path(), spec, plan, base); }),
              "500"));
  }
}

TEST_CASE("an adapter of another base or configuration is an error that names the tensor") {
  const ModelSpec spec = spec_of("llama/lora_default");
  const fs::path directory = directory_of("llama/lora_default");
  LoraPlan plan = plan_of("llama/lora_default");
  const auto source = open_adapter(directory, spec, plan);
  const std::string shapes = message_of<Error>([&] {
    source->check("layers.0.attention.q.lora_A", {8, 64});
  });
  CHECK(has(shapes,
            "tensor base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight is "
            "[4, 64], but this base model and adapter_config.json require [8, 64]"));
  CHECK(has(shapes, "Use the base model of the adapter"));
  const std::string base =
      message_of<Error>([&] { source->check("layers.0.attention.q.weight", {}); });
  CHECK(has(base, "does not hold layers.0.attention.q.weight, which is a parameter of the base"));
  const auto open = [&] { open_adapter(directory, spec, plan); };
  plan.modules.erase("layers.1.attention.v");
  CHECK(has(message_of<Error>(open),
            "holds tensor base_model.model.model.layers.1.self_attn.v_proj"));
  plan = plan_of("llama/lora_default");
  plan.modules["layers.0.mlp.up"] = {4, 1};
  plan.trained.insert("head.weight");
  const std::string missing = message_of<Error>(open);
  CHECK(has(missing, "is missing tensors that its adapter_config.json requires"));
  CHECK(has(missing, "base_model.model.lm_head.weight\n"));
  CHECK(has(missing, "layers.0.mlp.up_proj.lora_A.weight"));
}

TEST_CASE("weights in another form, and values that are not finite, are refused") {
  const ModelSpec spec = spec_of("llama/lora_default");
  const LoraPlan plan = {.modules = {}, .trained = {"head.norm.weight"}};
  const TempFolder directory;
  const auto open = [&] { return open_adapter(directory.path(), spec, plan); };
  CHECK(has(message_of<Error>(open), kAdapterWeightsFile));
  directory.write("adapter_model.bin", "x");
  CHECK(has(message_of<Error>(open), "holds adapter_model.bin, but no adapter_model.safetensors"));
  Tensor values = torch::ones({64});
  values[7] = std::numeric_limits<float>::quiet_NaN();
  save(directory.path(), {{"base_model.model.model.norm.weight", values}});
  const std::string message = message_of<Error>([&] {
    read_full(*open(), {"head.norm.weight", {64}});
  });
  CHECK(has(message, "tensor base_model.model.model.norm.weight has a value that is NaN"));
}

}  // namespace zeroth::model::adapter_files_test
