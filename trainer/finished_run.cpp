#include "trainer/finished_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "model/hf/safetensors.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

// Returns whether trainer_state.json, the last file that a run writes, covers all `steps`.
bool has_results_for(const fs::path& output, int64_t steps, bool evaluated) {
  const fs::path path = output / "trainer_state.json";
  std::error_code unknown;
  if (!fs::exists(path, unknown)) return false;
  const nlohmann::json tree = read_json({.name = path.string()});
  const JsonView state(tree);
  (void)state.at("global_step").integer(steps, steps);
  (void)state.at("max_steps").integer(steps, steps);
  if (!evaluated) return true;
  const JsonView rows = state.at("log_history");
  for (size_t i = rows.size(); i-- > 0;) {
    const JsonView one = rows.at(i);
    const nlohmann::json& row = one.object();
    const auto loss = row.find("eval_loss"), step = row.find("step");
    if (loss == row.end() || !loss->is_number() || step == row.end()) continue;
    return *step == steps;
  }
  return false;
}

}  // namespace

std::string finished_message(const RunPlan& plan) {
  const fs::path output = plan.flags.output;
  if (!plan.resume_plan || !plan.trains() || output.empty()) return "";
  const int64_t steps = plan.samples.total_steps;
  std::error_code unknown;
  const fs::path own = fs::weakly_canonical(output / "checkpoints", unknown);
  if (plan.resume_plan->step != steps || plan.resume_plan->checkpoint.parent_path() != own)
    return "";
  try {
    const bool holds_model =
        fs::exists(output / "config.json", unknown) && model::has_weights(output);
    const bool evaluates = plan.samples.eval != nullptr;
    if (!holds_model || !has_results_for(output, steps, evaluates)) return "";
  } catch (const Error&) {
    return "";  // they are written again then
  }
  return fmt::format(
      "{} has the model and the results of all {} steps: nothing to do. Increase --steps or "
      "--epochs to continue, or set another --output to start over",
      output.string(), steps);
}

}  // namespace zeroth::trainer
