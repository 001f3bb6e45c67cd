#include "trainer/beginning.h"

#include <utility>

#include "base/error.h"
#include "base/output_lock.h"
#include "model/hf/output_folder.h"
#include "model/hf/temporary_folder.h"
#include "trainer/run_plan.h"
#include "trainer/step_folder.h"

namespace zeroth::trainer {
namespace {

void clear_output(const RunPlan& plan) {
  const Flags& flags = plan.flags;
  if (flags.only_prints() || flags.output.empty()) return;
  OutputLock::require_free(flags.output, plan.output_round());
  model::OutputFolder::clear_leftovers(flags.output);
  model::clear_leftovers(flags.output, is_step_folder);
}

// One that cannot be read must not end the run for ever: its rounds then are not known.
std::optional<RoundRecord> record_of_rounds(RunPlan& plan) {
  try {
    return read_rounds(plan.flags.output);
  } catch (const Error& error) {
    plan.notes.push_back({configs::Note::Kind::kWarning, "--output", error.what()});
    return std::nullopt;
  }
}

// Whether it is a later round of a run that has begun in this output. An agent of torchrun that
// came or went counts as no restart; that rounds were before is then known by their record.
bool is_later_round(RunPlan& plan) {
  comm::Round& round = plan.round;
  if (round.number == 0 || plan.flags.output.empty() || plan.flags.eval_only) return false;
  auto record = record_of_rounds(plan);
  if (!record || record->run != round.run) {
    // A run that is known leaves its record before all else: nothing of it is in this output.
    if (!round.run.empty()) round.goes_on = false;
    return round.goes_on;
  }
  if (!round.run.empty() && !record->rounds.empty() && record->rounds.back().round > round.number) {
    throw Error("{} is that of round {} of this run: round {} is over", plan.flags.output,
                record->rounds.back().round, round.number);
  }
  round.goes_on = round.goes_on || !round.run.empty();
  if (round.goes_on) plan.before = std::move(record);
  return round.goes_on;
}

void keep_batch(RunPlan& plan) {
  configs::FlagValues& values = plan.flags.values;
  if (plan.resumed) values.rank_batch_so_far = plan.resumed->rank_batch;
  if (plan.before) {
    values.batch_so_far = plan.before->batch;
    values.micro_so_far = plan.before->micro_batch;
    return;
  }
  if (!plan.resumed) return;
  values.batch_so_far = plan.resumed->batch;
  values.batch_may_change = plan.flags.resume.batch_may_change;
  const bool of_this_run = !plan.round.run.empty() && plan.resumed->run == plan.round.run;
  if (plan.round.goes_on && of_this_run) values.micro_so_far = plan.resumed->batch;  // any
}

}  // namespace

void check_output(const RunPlan& plan) {
  const Flags& flags = plan.flags;
  if (flags.output.empty() || flags.eval_only) return;
  clear_output(plan);
  model::OutputFolder::check(flags.output, flags.overwrite || flags.resume.is_on());
}

void find_beginning(RunPlan& plan) {
  ResumeFlags& resume = plan.flags.resume;
  const bool later = is_later_round(plan);
  if (later || resume.is_on()) clear_output(plan);  // it may hold the checkpoints
  plan.resumed =
      later ? find_resumption_of_round(plan.flags, plan.round.run) : find_resumption(plan.flags);
  if (later && !resume.is_on()) resume.from = ResumeFlags::From::kNewestOrNothing;
  keep_batch(plan);
}

void require_steps_left(const RunPlan& plan) {
  if (!plan.resumed || !plan.samples.train) return;
  const int64_t total = plan.samples.total_steps;
  if (plan.resumed->step <= total) return;
  const std::string checkpoint = plan.resumed->checkpoint.string();
  throw Error(
      "{}: {} has taken {} steps, and this run ends after {}: ask for more, or begin anew from its "
      "weights by --model {} without --resume",
      plan.flags.steps ? "--steps" : "--epochs", checkpoint, plan.resumed->step, total, checkpoint);
}

}  // namespace zeroth::trainer
