#include "trainer/start_step.h"

#include <utility>

#include "base/error.h"
#include "base/files/output_lock.h"
#include "model/hf/output_directory.h"
#include "model/hf/temporary_directory.h"
#include "trainer/run_plan.h"
#include "trainer/step_directory.h"

namespace zeroth::trainer {
namespace {

void clear_output(const RunPlan& plan) {
  const Flags& flags = plan.flags;
  if (flags.only_prints() || flags.output.empty()) return;
  OutputLock::require_free(flags.output, plan.output_attempt());
  model::OutputDirectory::clear_leftovers(flags.output);
  model::clear_leftovers(flags.output, is_step_directory);
}

// Reads the record. One that cannot be read is only a warning, since it must not block the run
// forever; earlier attempts are unknown then.
std::optional<AttemptRecord> read_attempts_or_warn(RunPlan& plan) {
  try {
    return read_attempts(plan.flags.output);
  } catch (const Error& error) {
    plan.notes.push_back({configs::Diagnostic::Kind::kWarning, "--output", error.what()});
    return std::nullopt;
  }
}

// Returns whether this is a later attempt of a run that has begun in this output. torchrun does not
// count an agent that joins or leaves as a restart; the record reveals earlier attempts then.
bool is_restart(RunPlan& plan) {
  comm::RestartAttempt& attempt = plan.attempt;
  if (attempt.index == 0 || plan.flags.output.empty() || plan.flags.eval_only) return false;
  auto record = read_attempts_or_warn(plan);
  if (!record || record->run != attempt.run) {
    // A known run writes its record before all else, so this output holds nothing of it.
    if (!attempt.run.empty()) attempt.resumes = false;
    return attempt.resumes;
  }
  if (!attempt.run.empty() && !record->rounds.empty() &&
      record->rounds.back().round > attempt.index) {
    throw Error("{} belongs to round {} of this run: round {} is over", plan.flags.output,
                record->rounds.back().round, attempt.index);
  }
  attempt.resumes = attempt.resumes || !attempt.run.empty();
  if (attempt.resumes) plan.previous_attempts = std::move(record);
  return attempt.resumes;
}

void inherit_batch(RunPlan& plan) {
  configs::FlagValues& values = plan.flags.values;
  if (plan.resume_plan) values.previous_rank_batch = plan.resume_plan->rank_batch;
  if (plan.previous_attempts) {
    values.previous_batch = plan.previous_attempts->batch;
    values.previous_micro_batch = plan.previous_attempts->micro_batch;
    return;
  }
  if (!plan.resume_plan) return;
  values.previous_batch = plan.resume_plan->batch;
  values.allow_batch_change = plan.flags.resume.allow_batch_change;
  const bool of_this_run = !plan.attempt.run.empty() && plan.resume_plan->run == plan.attempt.run;
  if (plan.attempt.resumes && of_this_run)
    values.previous_micro_batch = plan.resume_plan->batch;  // no limit
}

}  // namespace

void check_output(const RunPlan& plan) {
  const Flags& flags = plan.flags;
  if (flags.output.empty() || flags.eval_only) return;
  clear_output(plan);
  model::OutputDirectory::check(flags.output, flags.overwrite || flags.resume.is_on());
}

void resolve_start_step(RunPlan& plan) {
  ResumeFlags& resume = plan.flags.resume;
  const bool later = is_restart(plan);
  if (later || resume.is_on()) clear_output(plan);  // it may hold the checkpoints
  plan.resume_plan =
      later ? find_restart_resume_plan(plan.flags, plan.attempt.run) : find_resume_plan(plan.flags);
  if (later && !resume.is_on()) resume.from = ResumeFlags::From::kNewestOrNothing;
  inherit_batch(plan);
}

void require_steps_left(const RunPlan& plan) {
  if (!plan.resume_plan || !plan.samples.train) return;
  const int64_t total = plan.samples.total_steps;
  if (plan.resume_plan->step <= total) return;
  const std::string checkpoint = plan.resume_plan->checkpoint.string();
  throw Error(
      "{}: {} has taken {} steps, but this run ends after {}: increase it, or start a new run from "
      "its weights with --model {} without --resume",
      plan.flags.steps ? "--steps" : "--epochs", checkpoint, plan.resume_plan->step, total,
      checkpoint);
}

}  // namespace zeroth::trainer
