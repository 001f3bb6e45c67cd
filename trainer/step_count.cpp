#include "trainer/step_count.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "configs/defaults.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

// Leaves out an incomplete `batch` at the end of every epoch.
void drop_incomplete_batch(RunPlan& plan, int64_t batch) {
  const int64_t samples = plan.samples.train_size();
  plan.samples.epoch_samples = samples / batch * batch;
  if (plan.samples.epoch_samples == 0) {
    throw Error(
        "{}: {} samples do not fill a global batch of {}, and dataloader_drop_last drops "
        "the rest",
        plan.flags.data, samples, batch);
  }
  if (plan.samples.epoch_samples == samples) return;
  note(plan.notes, "dataloader_drop_last",
       "dataloader_drop_last: {} of {} samples are left out of an epoch",
       samples - plan.samples.epoch_samples, samples);
}

void set_offset(RunPlan& plan, int64_t global_batch) {
  if (plan.resume_plan) plan.offset = resume_offset(*plan.resume_plan, plan.samples, global_batch);
}

// Keeps the ends of epochs and their number of samples, which decide the place of each sample: both
// stay as the run began, however its command line is spelled now.
void keep_epoch_layout(RunPlan& plan, int64_t global_batch) {
  Samples& samples = plan.samples;
  if (!plan.resume_plan || plan.resume_plan->epochs.samples == 0) return;
  const Epochs& before = plan.resume_plan->epochs;
  const bool short_steps = before.positions > before.samples;
  const bool known = short_steps || before.samples % plan.resume_plan->batch != 0;
  if (known && short_steps != samples.whole_epochs) {
    samples.whole_epochs = short_steps;
    note(plan.notes, "--epochs", "epochs end as when this run started: {}",
         short_steps ? "with a step of the remaining samples"
                     : "within a step, which continues in the next one");
  }
  const bool same_batch = plan.resume_plan->batch == global_batch;
  if (same_batch && before.samples <= samples.train_size()) samples.epoch_samples = before.samples;
}

int64_t steps_to_cover(int64_t positions, int64_t global_batch) {
  return (positions + global_batch - 1) / global_batch;
}

// Counts the steps of epochs as in Trainer: an epoch has full steps and a last one with the
// remaining samples.
int64_t count_whole_epochs(RunPlan& plan, const configs::BatchConfig& batch, double epochs) {
  Samples& samples = plan.samples;
  const int64_t steps = (samples.epoch_samples - 1) / batch.train_batch_size + 1;
  samples.epoch_positions = steps * batch.train_batch_size;
  set_offset(plan, batch.train_batch_size);
  if (plan.flags.steps) return *plan.flags.steps;
  samples_in_epochs(epochs, samples.epoch_positions);  // throws if there are too many
  const auto all = static_cast<int64_t>(std::ceil(epochs * static_cast<double>(steps)));
  const int64_t positions = all * batch.train_batch_size;
  samples.train_samples = samples.num_samples_in(positions);
  return std::max<int64_t>(1, steps_to_cover(positions - plan.offset, batch.train_batch_size));
}

}  // namespace

int64_t resume_offset(const ResumePlan& from, const Samples& samples, int64_t global_batch) {
  const int64_t per_epoch = from.epochs.samples > 0 ? from.epochs.samples : samples.epoch_samples;
  int64_t positions = 0;
  int64_t taken = 0;
  if (__builtin_mul_overflow(from.samples / per_epoch, samples.epoch_positions, &positions) ||
      __builtin_add_overflow(positions, from.samples % per_epoch, &positions) ||
      __builtin_mul_overflow(from.step, global_batch, &taken)) {
    throw Error("{}: {} steps of {} samples are too many", from.checkpoint.string(), from.step,
                global_batch);
  }
  return positions - taken;
}

int64_t samples_in_epochs(double epochs, int64_t samples) {
  const double wanted = std::round(epochs * static_cast<double>(samples));
  if (wanted > static_cast<double>(kMaxSteps)) {
    throw Error("--epochs {}: {} samples each make more than {} samples", epochs, samples,
                kMaxSteps);
  }
  return std::max<int64_t>(1, static_cast<int64_t>(wanted));
}

std::optional<int64_t> count_steps(RunPlan& plan, const configs::BatchConfig& batch, bool drops) {
  if (!plan.samples.train) return plan.flags.steps;
  const configs::Defaults& defaults = configs::defaults_for(plan.flags.values);
  const int64_t global_batch = batch.train_batch_size;
  const int64_t micro_step = global_batch / batch.accumulation_steps;
  Samples& samples = plan.samples;
  samples.epoch_samples = samples.train_size();
  samples.whole_epochs = defaults.whole_epochs;
  if (drops) drop_incomplete_batch(plan, defaults.whole_epochs ? micro_step : global_batch);
  keep_epoch_layout(plan, global_batch);
  samples.epoch_positions = samples.epoch_samples;
  const double epochs = plan.flags.epochs.value_or(defaults.epochs);
  if (samples.whole_epochs) return count_whole_epochs(plan, batch, epochs);
  set_offset(plan, global_batch);
  if (plan.flags.steps) return plan.flags.steps;
  samples.train_samples = samples_in_epochs(epochs, samples.epoch_samples);
  const int64_t positions = samples.train_samples - plan.offset;
  const int64_t steps = std::max<int64_t>(
      1, drops ? positions / global_batch : steps_to_cover(positions, global_batch));
  if (drops) samples.train_samples = steps * global_batch + plan.offset;
  return steps;
}

}  // namespace zeroth::trainer
