#include "trainer/run_adapter.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/printable.h"
#include "configs/schema/keys.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/adapter_files.h"
#include "model/hf/checkpoint_source.h"
#include "model/hf/lora_model.h"
#include "trainer/failure.h"
#include "trainer/run_plan.h"
#include "zero/dtype.h"

namespace zeroth::trainer {
namespace {

// The only key in which a run may differ from the adapter that it continues.
constexpr std::string_view kDropout = "lora.lora_dropout";
constexpr std::string_view kTargets = "lora.target_modules";
constexpr std::string_view kToSave = "lora.modules_to_save";

// Returns whether the user has given the value of a key.
bool is_given(const configs::Origins& origins, std::string_view path) {
  const auto found = origins.find(std::string(path));
  if (found == origins.end()) return false;
  const std::string& origin = found->second;
  return origin == "file" || origin.starts_with("--") || origin.starts_with("auto: --");
}

// Notes that the adapter was trained over a model of another name.
void note_base(const std::string& base, ResolvedRun& run) {
  const auto last = [](const std::string& path) {
    return std::filesystem::path(path).lexically_normal().filename();
  };
  if (base.empty() || last(base) == last(run.flags.model_name)) return;
  note(run.notes, "--adapter", "{} was trained over {}; this run adds it to {}", run.flags.adapter,
       shortened(base), run.flags.model_name);
}

// Returns the name of the precision to which weights in NF4 are dequantized.
std::string dequantized_dtype(const model::QuantizationSpec& quantization,
                              const configs::Config& config) {
  return quantization.dtype.empty()
             ? std::string(model::torch_dtype_name(zero::working_dtype(config)))
             : quantization.dtype;
}

// Notes that the adapter was trained over NF4 of another form, or that this run does not use NF4.
// The files of an adapter that peft has trained do not say.
void note_quantization(ResolvedRun& run) {
  const auto describe = [](const model::QuantizationSpec& quantization) {
    return quantization.double_quant ? "NF4 with double quantization"
                                     : "NF4 without double quantization";
  };
  const auto before = model::read_adapter_quantization(run.flags.adapter);
  if (!before) return;
  const std::string now =
      run.spec.quantization ? describe(*run.spec.quantization) : "weights that are not quantized";
  if (describe(*before) == now) return;
  note(run.notes, "--adapter", "{} was trained over {}; this run adds it to {}", run.flags.adapter,
       describe(*before), now);
}

// Returns a value of section lora in a form in which equal choices are equal.
nlohmann::ordered_json comparable(const configs::ConfigKey& key, const configs::Config& config,
                                  const model::ModelSpec& spec) {
  if (key.path == kTargets) {
    configs::ModuleNames targets = model::resolved_targets(spec, config.lora);
    std::ranges::sort(targets.names);
    return targets.pattern.empty() ? nlohmann::ordered_json(targets.names)
                                   : nlohmann::ordered_json(targets.pattern);
  }
  nlohmann::ordered_json value = key.field.get(config);
  if (key.path == kToSave && value.is_array()) std::sort(value.begin(), value.end());
  return value;
}

// Replaces section lora by that of the adapter that the run continues.
void take_over_adapter(ResolvedRun& run) {
  const model::AdapterConfig adapter = model::read_adapter_config(run.flags.adapter);
  note_base(adapter.base_model, run);
  configs::Config other = run.config;
  other.lora = adapter.lora;
  other.lora.enabled = true;
  std::vector<std::string> errors;
  for (const configs::ConfigKey& key : configs::keys()) {
    if (!key.path.starts_with("lora.") || key.field.get == nullptr) continue;
    const auto own = key.field.get(run.config), its = key.field.get(other);
    if (!is_given(run.origins, key.path)) {
      run.origins[std::string(key.path)] = "--adapter";
    } else if (key.path == kDropout) {
      key.field.set(own, other);
    } else if (comparable(key, run.config, run.spec) != comparable(key, other, run.spec)) {
      errors.push_back(fmt::format("{}: {} ({}), but {} of --adapter {}: leave it out", key.path,
                                   shortened(own.dump()), run.origins[std::string(key.path)],
                                   shortened(its.dump()), run.flags.adapter));
    }
  }
  if (!errors.empty()) throw Error("{}", fmt::join(errors, "\n"));
  run.config.lora = other.lora;
}

// Returns the plan. An Error about an adapter of files names them.
model::LoraPlan plan_adapters(const ResolvedRun& run) {
  if (run.flags.adapter.empty()) return model::plan_lora(run.spec, run.config.lora);
  try {
    return model::plan_lora(run.spec, run.config.lora);
  } catch (const Error& error) {
    throw Error("--adapter {} is not one of --model {}: {}", run.flags.adapter,
                run.flags.model_name, error.what());
  }
}

// Returns the adapters of all layers as those of the first one, which stands for the others where
// memory is estimated: the largest of each product.
std::map<std::string, model::LoraModule> in_first_layer(
    const std::map<std::string, model::LoraModule>& modules) {
  std::map<std::string, model::LoraModule> first;
  for (const auto& [path, module] : modules) {
    constexpr std::string_view kLayers = "layers.";
    const size_t dot = path.find('.', kLayers.size());
    const bool in_layer = path.starts_with(kLayers) && dot != path.npos;
    model::LoraModule& largest = first[in_layer ? "layers.0" + path.substr(dot) : path];
    if (module.r > largest.r) largest = module;
  }
  return first;
}

}  // namespace

void resolve_quantization(ResolvedRun& run) {
  constexpr std::string_view kLoad = "quantization.load_in_4bit (--load_in_4bit)";
  constexpr char kDouble[] = "quantization.bnb_4bit_use_double_quant";
  configs::QuantizationConfig& config = run.config.quantization;
  std::optional<model::QuantizationSpec>& stored = run.spec.quantization;
  if (stored) {
    if (config.nf4_weights && is_given(run.origins, kDouble) &&
        config.nested_scales != stored->double_quant) {
      throw Error("{}: {} ({}), but {} in the quantization_config of {}: leave it out", kDouble,
                  config.nested_scales, run.origins[kDouble], stored->double_quant,
                  run.flags.model_name);
    }
    config.nf4_weights = true;
    config.nested_scales = stored->double_quant;
    for (const char* key : {"quantization.load_in_4bit", kDouble})
      run.origins[key] = "config.json of --model";
  } else if (config.nf4_weights) {
    if (run.spec.conv1d)
      throw Error("{}: NF4 of {} models is not supported: leave it out", kLoad, run.spec.family);
    stored = model::QuantizationSpec{.double_quant = config.nested_scales};
  }
  if (!stored || !run.trains() || run.config.lora.enabled) return;
  throw Error(
      "{}: weights in 4 bits cannot be trained: train adapters over them, with --use_peft or "
      "\"lora\": {{}}, or leave it out",
      kLoad);
}

void resolve_adapter(ResolvedRun& run) {
  if (!run.flags.adapter.empty()) take_over_adapter(run);
  const configs::LoraConfig& lora = run.config.lora;
  if (!lora.enabled) return;
  if (run.flags.eval_only && run.flags.adapter.empty())
    throw Error("--eval-only evaluates no new adapter: give --adapter DIR, or leave lora out");
  if (run.flags.save_dtype && *run.flags.save_dtype != torch::kFloat) {
    warn(
        run.notes, "--save-dtype",
        "--save-dtype has no effect on adapters, which are saved in fp32 as by peft; zeroth export "
        "--dtype rounds a checkpoint's");
  }
  run.adapter = model::AdapterForm{
      .plan = plan_adapters(run),
      .texts = {.config = model::adapter_config_text(run.spec, {lora, run.flags.model_name})}};
  if (run.spec.quantization) {
    run.adapter->texts.quantization = model::adapter_quantization_text(
        *run.spec.quantization, dequantized_dtype(*run.spec.quantization, run.config));
  }
  if (!run.flags.adapter.empty()) note_quantization(run);
}

model::Blocks build_blocks(const ResolvedRun& run, const model::ModelSpec& spec,
                           const model::TensorParallelPtr& tp) {
  if (!run.adapter) return model::build_blocks(spec, tp);
  model::LoraPlan plan = run.adapter->plan;
  if (spec.num_layers < run.spec.num_layers) plan.modules = in_first_layer(plan.modules);
  return build_blocks(spec, plan, tp);
}

model::Blocks build_blocks(const model::ModelSpec& spec, const model::LoraPlan& plan,
                           const model::TensorParallelPtr& tp) {
  model::Blocks blocks = model::build_blocks(model::lora_spec(spec, plan), tp);
  model::add_adapters(blocks, plan);
  return blocks;
}

std::shared_ptr<model::WeightSource> open_weights(const RunPlan& plan) {
  if (plan.resume_plan && !plan.adapter) return nullptr;
  return rethrow_as_usage_error(plan.attempt, [&]() -> std::unique_ptr<model::WeightSource> {
    const Flags& flags = plan.flags;
    auto base = model::open_weights(flags.model, plan.spec, plan.config.seed,
                                    zero::working_dtype(plan.config));
    if (!plan.adapter) return base;
    const model::LoraPlan& adapters = plan.adapter->plan;
    std::unique_ptr<model::WeightSource> trained;
    if (!flags.adapter.empty() && !plan.resume_plan) {
      trained = model::open_adapter(flags.adapter, plan.spec, adapters);
      model::check_base_tables(flags.adapter, plan.spec, adapters, *base);
    }
    return model::make_lora_source(adapters, std::move(base), std::move(trained), plan.config.seed);
  });
}

}  // namespace zeroth::trainer
