#include "model/hf/adapter_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "configs/config.h"
#include "configs/resolve.h"
#include "configs/schema/keys.h"
#include "model/hf/checkpoint_map.h"
#include "model/hf/checkpoint_source.h"
#include "model/hf/config_reader.h"
#include "model/hf/safetensors.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;

using nlohmann::ordered_json;

constexpr const char* kPrefix = "base_model.model.";
constexpr const char* kOldWeightsFile = "adapter_model.bin";
constexpr const char* kMerge =
    "Merge the adapter in Python (peft's merge_and_unload) and use the merged model";

// What peft writes for a plain adapter, in its order.
constexpr const char* kConfigText = R"({
  "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null,
  "base_model_name_or_path": null, "bias": "none", "corda_config": null,
  "ensure_weight_tying": false, "eva_config": null, "exclude_modules": null,
  "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true, "kasa_config": null,
  "layer_replication": null, "layers_pattern": null, "layers_to_transform": null,
  "loftq_config": {}, "lora_alpha": 8, "lora_bias": false, "lora_dropout": 0.0,
  "lora_ga_config": null, "megatron_config": null, "megatron_core": "megatron.core",
  "modules_to_save": null, "monteclora_config": null, "peft_type": "LORA",
  "peft_version": "0.21.2", "qalora_group_size": 16, "r": 8, "rank_pattern": {}, "revision": null,
  "target_modules": null, "target_parameters": null, "task_type": "CAUSAL_LM",
  "trainable_token_indices": null, "use_bdlora": null, "use_dora": false, "use_qalora": false,
  "use_rslora": false, "velora_config": null
})";

// Returns a whole number as such.
ordered_json number_json(const ordered_json& number) {
  constexpr double kMaxWhole = 1e15;
  const auto value = number.get<double>();
  if (value != std::floor(value) || std::abs(value) > kMaxWhole) return number;
  return static_cast<int64_t>(value);
}

// Modules beside whose adapters peft saves the base's own table, too.
constexpr const char* kTables[] = {"embedding", kPositionsModule, "head"};

// An AdapterSource reads from one file. Its parameters have canonical names.
class AdapterSource final : public WeightSource {
 public:
  AdapterSource(const fs::path& path, const ModelSpec& spec, const LoraPlan& plan) : file_(path) {
    std::map<std::string, std::string> missing;  // canonical names, by name in the file
    const auto expect = [&](const std::string& canonical) {
      missing[adapter_tensor_name(spec, plan, canonical)] = canonical;
    };
    for (const auto& [module, adapter] : plan.modules) {
      for (const char* factor : {".lora_A", ".lora_B"}) expect(module + factor);
    }
    for (const std::string& name : plan.trained) expect(name);
    for (const auto& [stored, tensor] : file_.tensors()) {
      if (const auto node = missing.extract(stored)) {
        found_[node.mapped()] = {stored, {&file_, &tensor}};
      } else if (!is_ignored(stored, spec, plan)) {
        throw Error(
            "{} holds tensor {}, which an adapter by its {} does not have on this {} model. Use "
            "the base model of the adapter, and the {} that was saved with it.",
            path.string(), shortened(stored), kAdapterConfigFile, spec.family, kAdapterConfigFile);
      }
    }
    if (missing.empty()) return;
    std::vector<std::string> names;
    for (const auto& [stored, canonical] : missing) names.push_back(stored);
    throw Error("{} is missing tensors that its {} requires on this {} model:\n  {}", path.string(),
                kAdapterConfigFile, spec.family, listed(names));
  }

  void check(const std::string& name, const std::vector<int64_t>& shape) override {
    find(name).check(shape, "this base model and adapter_config.json require",
                     ". Use the base model of the adapter, and the file that was saved with it.");
  }

  void read(const ParamSlice& part, torch::Tensor out) override {
    find(part.name).read(part, std::move(out));
  }

 private:
  // Returns whether the tensor repeats values of the base: a table (see check_base_tables()), or
  // with bias "all" one of two more copies of each bias of modules_to_save.
  static bool is_ignored(const std::string& stored, const ModelSpec& spec, const LoraPlan& plan) {
    if (stored.ends_with(".original_module.bias") || stored.ends_with(".modules_to_save.bias"))
      return true;
    return std::ranges::any_of(kTables, [&](const char* module) {
      return plan.modules.contains(module) &&
             stored == adapter_tensor_name(spec, plan, matrix_of(module));
    });
  }

  const StoredParameter& find(const std::string& name) const {
    const auto it = found_.find(name);
    if (it == found_.end()) {
      throw Error("{} does not hold {}, which is a parameter of the base model",
                  file_.path().string(), name);
    }
    return it->second;
  }

  SafetensorsFile file_;
  std::map<std::string, StoredParameter> found_;  // by canonical name
};

}  // namespace

bool has_adapter(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / kAdapterConfigFile, ignored);
}

AdapterConfig read_adapter_config(const fs::path& directory) {
  const std::string path = (directory / kAdapterConfigFile).string();
  const ordered_json keys = parse_ordered_json(read_file(path, kConfigLimits.bytes),
                                               {.name = path, .limits = kConfigLimits});
  if (!keys.is_object()) throw Error("{} is not a JSON object", path);
  const auto type = keys.find("peft_type");
  if (type == keys.end() || type->is_null())
    throw Error("{}: peft_type is missing; supported is LORA", path);
  AdapterConfig adapter;
  try {
    adapter.lora = configs::parse_adapter_config(keys, path);
  } catch (const Error& error) {
    throw Error("{}\n  {}", error.what(), kMerge);
  }
  const auto base = keys.find("base_model_name_or_path");
  if (base != keys.end() && base->is_string()) adapter.base_model = base->get<std::string>();
  return adapter;
}

std::string adapter_config_text(const ModelSpec& spec, const AdapterConfig& adapter) {
  configs::Config config;
  config.lora = adapter.lora;
  ordered_json object = parse_trusted_json(kConfigText);
  for (auto& [name, value] : object.items()) {
    const configs::ConfigKey& key = configs::key_at("lora." + name);
    if (key.field.get == nullptr) continue;
    value = key.field.get(config);
    // peft writes its numbers as they were given, and a probability as a fraction.
    if (value.is_number_float() && name != "lora_dropout") value = number_json(value);
  }
  if (!adapter.base_model.empty()) object["base_model_name_or_path"] = adapter.base_model;
  object["fan_in_fan_out"] = spec.conv1d;
  configs::ModuleNames targets = resolved_targets(spec, adapter.lora);
  std::ranges::sort(targets.names);
  object["target_modules"] =
      targets.pattern.empty() ? ordered_json(targets.names) : ordered_json(targets.pattern);
  return object.dump(2, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace);
}

std::string adapter_quantization_text(const QuantizationSpec& quantization,
                                      const std::string& dtype) {
  ordered_json object;
  object["dtype"] = dtype;
  object["quantization_config"] = {
      {"quant_method", "bitsandbytes"},  {"load_in_4bit", true},
      {"bnb_4bit_quant_type", "nf4"},    {"bnb_4bit_use_double_quant", quantization.double_quant},
      {"bnb_4bit_compute_dtype", dtype},
  };
  return object.dump(2) + "\n";
}

std::optional<QuantizationSpec> read_adapter_quantization(const fs::path& directory) {
  const std::string path = (directory / kAdapterQuantizationFile).string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  const nlohmann::json object =
      parse_json(read_file(path, kConfigLimits.bytes), {.name = path, .limits = kConfigLimits});
  if (!object.is_object()) throw Error("{} is not a JSON object", path);
  ConfigReader config(object);
  ModelSpec spec;
  spec.dtype = config.text("dtype");
  std::optional<QuantizationSpec> quantization = read_quantization(config, spec);
  if (!quantization) config.add_error("quantization_config", "is missing");
  if (!parse_torch_dtype(spec.dtype)) config.add_error("dtype", "names no precision");
  if (!config.errors().empty()) throw Error("{}:\n  {}", path, listed(config.errors()));
  quantization->is_stored = false;
  return quantization;
}

std::string adapter_tensor_name(const ModelSpec& spec, const LoraPlan& plan,
                                const std::string& canonical) {
  ZEROTH_CHECK(canonical.rfind('.') != canonical.npos, "{} is no name of a parameter", canonical);
  const std::string module = module_of(canonical);
  if (canonical.ends_with(".lora_A") || canonical.ends_with(".lora_B")) {
    std::string stored = kPrefix + stored_name(spec, matrix_of(module));
    stored.resize(stored.rfind('.') + 1);
    if (is_embedding(module)) return stored + "lora_embedding_" + canonical.back();
    return stored + "lora_" + canonical.back() + ".weight";
  }
  std::string stored = kPrefix + stored_name(spec, canonical);
  if (plan.modules.contains(module)) stored.insert(stored.rfind('.'), ".base_layer");
  return stored;
}

ModelLayout plan_adapter(const ModelSpec& spec, const LoraPlan& plan,
                         const std::vector<PlannedTensor>& parameters) {
  ModelLayout layout{.dtype = torch::kFloat, .files = {{}}, .locations = {}, .index = {}};
  ModelLayout::ShardFile& file = layout.files.front();
  file.name = kAdapterWeightsFile;
  for (const PlannedTensor& parameter : parameters)
    file.tensors.push_back({adapter_tensor_name(spec, plan, parameter.name), parameter.shape});
  std::ranges::sort(file.tensors, {}, &PlannedTensor::name);
  file.layout = plan_safetensors(layout.dtype, file.tensors);
  for (const PlannedTensor& parameter : parameters) {
    const std::string name = adapter_tensor_name(spec, plan, parameter.name);
    layout.locations[parameter.name] = {
        {.offset = file.layout.offsets.at(name), .tensor = {name, parameter.shape}}};
  }
  return layout;
}

void check_base_tables(const fs::path& directory, const ModelSpec& spec, const LoraPlan& plan,
                       WeightSource& base) {
  const SafetensorsFile file(directory / kAdapterWeightsFile);
  for (const std::string module : kTables) {
    if (!plan.modules.contains(module)) continue;
    const std::string matrix = matrix_of(module);
    const auto found = file.tensors().find(adapter_tensor_name(spec, plan, matrix));
    if (found == file.tensors().end()) continue;
    const bool is_tied = module == "head" && spec.tie_word_embeddings;
    const std::string name = is_tied ? matrix_of("embedding") : matrix;
    const int64_t rows = name == kPositionsModule ? spec.max_positions : spec.vocab_size;
    const TensorSlice whole = TensorSlice::full({rows, spec.hidden_size});
    base.check(name, whole.shape);
    const StoredParameter copy{found->first, {&file, &found->second}};
    copy.check(whole.shape, "the base model requires", ". Use the base model of the adapter.");
    // peft widens to fp32 what a run had in 16 bits.
    std::set<torch::Dtype> roundings = {parse_dtype(found->second.dtype).value_or(torch::kFloat),
                                        torch::kBFloat16, torch::kHalf};
    constexpr int64_t kElementsAtOnce = int64_t{1} << 20;
    for (int64_t first = 0; first < whole.elements(); first += kElementsAtOnce) {
      const int64_t count = std::min(kElementsAtOnce, whole.elements() - first);
      const torch::Tensor values = torch::empty({count}), copied = torch::empty({count});
      base.read({name, whole, first}, values);
      copy.read({matrix, whole, first}, copied);
      std::erase_if(roundings, [&](torch::Dtype dtype) {
        return !torch::equal(values.to(dtype).to(torch::kFloat), copied);
      });
      if (!roundings.empty()) continue;
      throw Error(
          "{} holds {} with other values than the base model: use the base model that the adapter "
          "was trained over, with the tokens that were added to it",
          file.path().string(), shortened(found->first));
    }
  }
}

std::unique_ptr<WeightSource> open_adapter(const fs::path& directory, const ModelSpec& spec,
                                           const LoraPlan& plan) {
  const fs::path path = directory / kAdapterWeightsFile;
  std::error_code ignored;
  if (!fs::exists(path, ignored) && fs::exists(directory / kOldWeightsFile, ignored)) {
    throw Error(
        "{} holds {}, but no {}. Convert it in Python: "
        "peft.AutoPeftModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        directory.string(), kOldWeightsFile, kAdapterWeightsFile);
  }
  return std::make_unique<AdapterSource>(path, spec, plan);
}

}  // namespace zeroth::model
