#include "trainer/samples.h"

#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "configs/resolve.h"
#include "data/tokenizer/tokenizer.h"
#include "trainer/flags/flags.h"
#include "trainer/report/phase_progress.h"
#include "trainer/start_point.h"

namespace zeroth::trainer {
namespace {

// DatasetOpener opens the datasets of one run; they share a tokenizer, which is read on first use.
class DatasetOpener {
 public:
  DatasetOpener(const Flags& flags, const DatasetFacts& facts, PhaseProgress* phases)
      : flags_(flags), facts_(facts), phases_(phases) {}

  std::unique_ptr<data::Dataset> open(const std::string& path) {
    std::optional<PhaseProgress::Scope> phase;
    if (phases_ != nullptr) phase.emplace(phases_->begin({.name = "reading " + path}));
    const bool text = std::filesystem::path(path).extension() != ".bin";
    if (text && !tokenizer_) tokenizer_.emplace(data::Tokenizer::load(flags_.model));
    data::DatasetOptions options{.path = path,
                                 .tokenizer = tokenizer_ ? &*tokenizer_ : nullptr,
                                 .seq_len = facts_.seq_len,
                                 .vocab_size = facts_.vocab_size,
                                 .long_text = flags_.long_text,
                                 .token_type = flags_.token_type,
                                 .version = facts_.version};
    // The fields apply to the files that have any.
    const bool elsewhere = data::has_records(flags_.data) || data::has_records(flags_.eval_data);
    if (data::has_records(path) || !elsewhere) {
      options.prompt_field = flags_.prompt_field;
      options.completion_field = flags_.completion_field;
      options.separator = flags_.separator;
    }
    if (phase) {
      options.on_read = [this](int64_t done, int64_t bytes) { phases_->advance(done, bytes); };
    }
    auto dataset = data::open_dataset(options);
    if (phase) phase->finish();
    return dataset;
  }

  // Returns the dropped characters of all texts, see data::Tokenizer.
  int64_t num_dropped_chars() const { return tokenizer_ ? tokenizer_->num_dropped_chars() : 0; }

 private:
  const Flags& flags_;
  DatasetFacts facts_;
  PhaseProgress* phases_;
  std::optional<data::Tokenizer> tokenizer_;
};

constexpr double kMaxLostFraction = 0.01;  // of all tokens, without a warning

// Warns about the samples and tokens that --seq-len removes.
void warn_about_truncation(configs::Diagnostics& notes, const std::string& path,
                           const data::Dataset& samples) {
  const data::DatasetStats stats = samples.stats();
  const int64_t length = samples.seq_len();
  const int64_t records = stats.samples + stats.dropped;
  if (static_cast<double>(stats.dropped) > kMaxLostFraction * static_cast<double>(records)) {
    warn(notes, "--seq-len",
         "{}: {} of {} samples are dropped, nothing to train within {} positions: raise --seq-len",
         path, stats.dropped, records, length);
    if (stats.dropped > stats.samples) return;
  }
  if (stats.truncated + stats.dropped == 0) return;
  const int64_t all = stats.tokens + stats.lost_tokens;
  const double lost = static_cast<double>(stats.lost_tokens) / static_cast<double>(all);
  if (lost <= kMaxLostFraction) return;
  warn(notes, "--seq-len",
       "{}: {:.0f} % of the tokens ({} of {}) are cut off, beyond {} positions: {}raise --seq-len",
       path, 100 * lost, stats.lost_tokens, all, length,
       stats.pairs ? "" : "--long-text chunk keeps all, or ");
}

// Adds notes about a format of records that was inferred, not given.
void note_inferred_format(const Flags& flags, configs::Diagnostics& notes, const std::string& path,
                          const data::Dataset& samples) {
  const data::DatasetStats stats = samples.stats();
  if (!stats.guessed_fields.empty()) {
    note(notes, "--data",
         "{}: {}, joined as in \"{}\"; --prompt-field and --completion-field choose others, "
         "--separator another text between them",
         path, stats.guessed_fields, stats.joint_example);
  } else if (stats.pairs && !flags.separator) {
    note(notes, "--data",
         "{}: prompt and completion are joined as in \"{}\"; --separator puts another text between "
         "them",
         path, stats.joint_example);
  }
  if (!stats.own_special_tokens.empty())
    note(notes, "--data", "{}: {}", path, stats.own_special_tokens);
  if (stats.packed && !flags.long_text_given) {
    note(notes, "--long-text",
         "{}: the texts are joined and cut into windows, as run_clm.py does; --long-text cut uses "
         "each alone",
         path);
  }
  if (stats.pairs && flags.long_text_given && flags.long_text == data::LongText::kChunk) {
    warn(notes, "--long-text",
         "{}: --long-text chunk: no effect, the records are prompts and completions and each is a "
         "sample",
         path);
  }
}

// StepCounter computes the number of steps of a run, and the ends of its epochs.
class StepCounter {
 public:
  StepCounter(Datasets datasets, const StartPoint& start, const configs::BatchConfig& batch,
              configs::Diagnostics& notes)
      : samples_{std::move(datasets)}, start_(start), batch_(batch), notes_(notes) {}

  Samples count(bool drops) && {
    samples_.total_steps =
        samples_.train ? count_train_steps(drops) : start_.flags.steps.value_or(0);
    return std::move(samples_);
  }

 private:
  int64_t count_train_steps(bool drops) {
    const configs::Defaults& defaults = configs::defaults_for(start_.flags.values);
    samples_.epoch_samples = samples_.train_size();
    samples_.whole_epochs = defaults.whole_epochs;
    if (drops) {
      drop_incomplete_batch(defaults.whole_epochs ? global_batch() / batch_.accumulation_steps
                                                  : global_batch());
    }
    keep_epoch_layout();
    // As in Trainer, an epoch has full steps and a last one with the remaining samples, or it ends
    // within a step, which continues in the next epoch.
    const int64_t epoch_steps = (samples_.epoch_samples - 1) / global_batch() + 1;
    samples_.epoch_positions =
        samples_.whole_epochs ? epoch_steps * global_batch() : samples_.epoch_samples;
    if (start_.resume_plan) {
      samples_.offset = resume_offset(*start_.resume_plan, samples_, global_batch());
    }
    if (start_.flags.steps) return *start_.flags.steps;
    const double epochs = start_.flags.epochs.value_or(defaults.epochs);
    // Throws if there are too many.
    const int64_t consumed = samples_in_epochs(epochs, samples_.epoch_positions);
    if (samples_.whole_epochs) {
      const auto steps = static_cast<int64_t>(std::ceil(epochs * static_cast<double>(epoch_steps)));
      samples_.train_samples = samples_.num_samples_in(steps * global_batch());
      return steps_to_cover(steps * global_batch() - samples_.offset);
    }
    samples_.train_samples = consumed;
    if (!drops) return steps_to_cover(consumed - samples_.offset);
    const int64_t steps = std::max<int64_t>(1, (consumed - samples_.offset) / global_batch());
    samples_.train_samples = steps * global_batch() + samples_.offset;
    return steps;
  }

  // Leaves out an incomplete `batch` at the end of every epoch.
  void drop_incomplete_batch(int64_t batch) {
    const int64_t samples = samples_.train_size();
    samples_.epoch_samples = samples / batch * batch;
    if (samples_.epoch_samples == 0) {
      throw Error(
          "{}: {} samples do not fill a global batch of {}, and dataloader_drop_last drops "
          "the rest",
          start_.flags.data, samples, batch);
    }
    if (samples_.epoch_samples == samples) return;
    note(notes_, "dataloader_drop_last",
         "dataloader_drop_last: {} of {} samples are left out of an epoch",
         samples - samples_.epoch_samples, samples);
  }

  // Keeps the ends of epochs and their number of samples, which decide the place of each sample:
  // both stay as the run began, however its command line is spelled now.
  void keep_epoch_layout() {
    const auto& resume_plan = start_.resume_plan;
    if (!resume_plan || resume_plan->epochs.samples == 0) return;
    const Epochs& before = resume_plan->epochs;
    const bool short_steps = before.positions > before.samples;
    const bool known = short_steps || before.samples % resume_plan->batch != 0;
    if (known && short_steps != samples_.whole_epochs) {
      samples_.whole_epochs = short_steps;
      note(notes_, "--epochs", "epochs end as when this run started: {}",
           short_steps ? "with a step of the remaining samples"
                       : "within a step, which continues in the next one");
    }
    const bool same_batch = resume_plan->batch == global_batch();
    if (same_batch && before.samples <= samples_.train_size())
      samples_.epoch_samples = before.samples;
  }

  int64_t global_batch() const { return batch_.train_batch_size; }
  // Returns at least one.
  int64_t steps_to_cover(int64_t positions) const {
    return std::max<int64_t>(1, (positions + global_batch() - 1) / global_batch());
  }

  Samples samples_;
  const StartPoint& start_;
  const configs::BatchConfig& batch_;
  configs::Diagnostics& notes_;
};

}  // namespace

Datasets open_datasets(const Flags& flags, const DatasetFacts& facts, configs::Diagnostics& notes,
                       PhaseProgress* phases) {
  Datasets datasets{facts};
  DatasetOpener opener(flags, facts, phases);
  if (!flags.eval_only && !flags.data.empty()) datasets.train = opener.open(flags.data);
  if (flags.max_train_samples) datasets.max_train_samples = *flags.max_train_samples;
  const bool evaluates = flags.eval_only || !flags.eval_data.empty();
  if (evaluates && !eval_path(flags).empty()) datasets.eval = opener.open(eval_path(flags));
  if (opener.num_dropped_chars() > 0) {
    warn(notes, "--data", "{}/tokenizer.json: {} characters of the data have no token: left out",
         flags.model, opener.num_dropped_chars());
  }
  if (!datasets.eval) return datasets;
  datasets.eval_samples = datasets.eval->size();
  if (flags.max_eval_samples) {
    datasets.eval_samples = std::min(datasets.eval_samples, *flags.max_eval_samples);
  }
  return datasets;
}

void add_dataset_notes(const Flags& flags, const Datasets& datasets, configs::Diagnostics& notes) {
  const auto add_notes = [&](const data::Dataset* dataset, const std::string& path) {
    if (dataset == nullptr) return;
    warn_about_truncation(notes, path, *dataset);
    note_inferred_format(flags, notes, path, *dataset);
  };
  if (datasets.version == 1) {
    note(notes, "--resume",
         "the samples are those of the earlier version that started the run: nothing separates "
         "prompt and completion by default, and incomplete windows are dropped");
  }
  add_notes(datasets.train.get(), flags.data);
  add_notes(datasets.eval.get(), eval_path(flags));
}

const std::string& eval_path(const Flags& flags) {
  return flags.eval_data.empty() ? flags.data : flags.eval_data;
}

int64_t Samples::num_samples_in(int64_t positions) const {
  if (epoch_samples == 0) return 0;
  const int64_t rest = std::min(positions % epoch_positions, epoch_samples);
  return std::min(positions / epoch_positions * epoch_samples + rest, train_samples);
}

Samples count_steps(Datasets datasets, const StartPoint& start, const configs::BatchConfig& batch,
                    bool drops, configs::Diagnostics& notes) {
  return StepCounter(std::move(datasets), start, batch, notes).count(drops);
}

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

}  // namespace zeroth::trainer
