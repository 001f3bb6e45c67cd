#include "trainer/run_adapter.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "configs/schema/keys.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/adapter_files.h"
#include "model/hf/checkpoint_source.h"
#include "model/hf/lora_model.h"
#include "trainer/failure.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

// The only key in which a run may differ from the adapter that it continues.
constexpr std::string_view kDropout = "lora.lora_dropout";

// Returns whether the user has given the value of a key.
bool is_given(const configs::Origins& origins, std::string_view path) {
  const auto found = origins.find(std::string(path));
  if (found == origins.end()) return false;
  const std::string& origin = found->second;
  return origin == "file" || origin.starts_with("--") || origin.starts_with("auto: --");
}

// Replaces section lora by that of the adapter that the run continues.
void take_over_adapter(ResolvedRun& run) {
  const model::AdapterConfig adapter = model::read_adapter_config(run.flags.adapter);
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
    } else if (own != its) {
      errors.push_back(fmt::format("{}: {} ({}), but {} of --adapter {}: leave it out", key.path,
                                   own.dump(), run.origins[std::string(key.path)], its.dump(),
                                   run.flags.adapter));
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

}  // namespace

void resolve_adapter(ResolvedRun& run) {
  if (!run.flags.adapter.empty()) take_over_adapter(run);
  const configs::LoraConfig& lora = run.config.lora;
  if (!lora.enabled) return;
  run.adapter = model::AdapterForm{
      .plan = plan_adapters(run),
      .config = model::adapter_config_text(run.spec, {lora, run.flags.model_name})};
}

model::Blocks build_blocks(const ResolvedRun& run, const model::ModelSpec& spec,
                           const model::TensorParallelPtr& tp) {
  if (!run.adapter) return model::build_blocks(spec, tp);
  model::Blocks blocks = model::build_blocks(model::lora_spec(spec, run.adapter->plan), tp);
  model::add_adapters(blocks, run.adapter->plan);
  return blocks;
}

std::shared_ptr<model::WeightSource> open_weights(const RunPlan& plan) {
  if (plan.resume_plan && !plan.adapter) return nullptr;
  return rethrow_as_usage_error(plan.attempt, [&]() -> std::unique_ptr<model::WeightSource> {
    const Flags& flags = plan.flags;
    auto base = model::open_weights(flags.model, plan.spec, plan.config.seed);
    if (!plan.adapter) return base;
    const bool reads_adapter = !flags.adapter.empty() && !plan.resume_plan;
    auto adapter =
        reads_adapter ? model::open_adapter(flags.adapter, plan.spec, plan.adapter->plan) : nullptr;
    return model::make_lora_source(plan.adapter->plan, std::move(base), std::move(adapter),
                                   plan.config.seed);
  });
}

}  // namespace zeroth::trainer
