#include "trainer/start_point.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files/output_lock.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "checkpoint/names.h"
#include "model/hf/adapter_files.h"
#include "model/hf/output_directory.h"
#include "model/hf/safetensors.h"
#include "model/hf/temporary_directory.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

void clear_output(const StartPoint& start) {
  const Flags& flags = start.flags;
  if (flags.only_prints() || flags.output.empty()) return;
  OutputLock::require_free(flags.output, {start.attempt.run, start.attempt.index});
  model::OutputDirectory::cleanup_leftovers(flags.output);
  model::cleanup_leftovers(flags.output, is_step_directory);
}

// Returns whether this is a later attempt of a run that has begun in this output. torchrun does not
// count an agent that joins or leaves as a restart; the record reveals earlier attempts then.
bool is_restart(StartPoint& start) {
  RestartAttempt& attempt = start.attempt;
  if (attempt.index == 0 || start.flags.output.empty() || start.flags.eval_only) return false;
  std::optional<AttemptRecord> record;
  try {
    record = read_attempts(start.flags.output);
  } catch (const Error& error) {
    // An unreadable record must not block the run forever; earlier attempts are unknown then.
    warn(start.notes, "--output", "{}", error.what());
  }
  if (!record || record->run != attempt.run) {
    // A known run writes its record before all else, so this output holds nothing of it.
    if (!attempt.run.empty()) attempt.resumes = false;
    return attempt.resumes;
  }
  if (!attempt.run.empty() && !record->rounds.empty() &&
      record->rounds.back().round > attempt.index) {
    throw Error("{} belongs to round {} of this run: round {} is over", start.flags.output,
                record->rounds.back().round, attempt.index);
  }
  attempt.resumes = attempt.resumes || !attempt.run.empty();
  if (attempt.resumes) start.previous_attempts = std::move(record);
  return attempt.resumes;
}

void inherit_batch(StartPoint& start) {
  configs::FlagValues& values = start.flags.values;
  if (start.resume_plan) values.previous_rank_batch = start.resume_plan->rank_batch;
  if (start.previous_attempts) {
    values.previous_batch = start.previous_attempts->batch;
    values.previous_micro_batch = start.previous_attempts->micro_batch;
    return;
  }
  if (!start.resume_plan) return;
  values.previous_batch = start.resume_plan->batch;
  values.allow_batch_change = start.flags.resume.allow_batch_change;
  const std::string& run = start.attempt.run;
  const bool of_this_run = !run.empty() && start.resume_plan->run == run;
  if (start.attempt.resumes && of_this_run)
    values.previous_micro_batch = start.resume_plan->batch;  // no limit
}

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

StartPoint resolve_start_point(Flags flags, RestartAttempt attempt) {
  StartPoint start{.flags = std::move(flags), .attempt = std::move(attempt)};
  ResumeFlags& resume = start.flags.resume;
  const bool later = is_restart(start);
  if (later || resume.is_on()) clear_output(start);  // it may hold the checkpoints
  start.resume_plan = later ? find_restart_resume_plan(start.flags, start.attempt.run)
                            : find_resume_plan(start.flags);
  if (later && !resume.is_on()) resume.from = ResumeFlags::From::kNewestOrNothing;
  inherit_batch(start);
  return start;
}

void check_output(const StartPoint& start) {
  const Flags& flags = start.flags;
  if (flags.output.empty() || flags.eval_only) return;
  if (!flags.resume.is_on()) clear_output(start);  // otherwise resolve_start_point() has
  model::OutputDirectory::check(flags.output, flags.overwrite || flags.resume.is_on());
}

void require_steps_left(const StartPoint& start, int64_t total_steps) {
  if (!start.resume_plan || start.resume_plan->step <= total_steps) return;
  const std::string checkpoint = start.resume_plan->checkpoint.string();
  throw Error(
      "{}: {} has taken {} steps, but this run ends after {}: increase it, or start a new run from "
      "its weights with {} {} without --resume",
      start.flags.steps ? "--steps" : "--epochs", checkpoint, start.resume_plan->step, total_steps,
      weights_flag(checkpoint), checkpoint);
}

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
        plan.adapter ? model::has_adapter(output)
                     : fs::exists(output / "config.json", unknown) && model::has_weights(output);
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

bool is_step_directory(const std::string& name) {
  return checkpoint::parse_step(name) || checkpoint::parse_trainer_step(name);
}

}  // namespace zeroth::trainer
