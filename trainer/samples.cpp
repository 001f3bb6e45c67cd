#include "trainer/samples.h"

#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text/units.h"
#include "configs/resolve.h"
#include "data/tokenizer/tokenizer.h"
#include "trainer/flags/flags.h"
#include "trainer/report/phase_progress.h"
#include "trainer/start_point.h"

namespace zeroth::trainer {
namespace {

// `tokenizer`: of all datasets of the run; it is read on first use.
std::unique_ptr<data::Dataset> open_dataset(const Flags& flags, const DatasetFacts& facts,
                                            const std::string& path,
                                            std::optional<data::Tokenizer>& tokenizer,
                                            PhaseProgress* phases) {
  std::optional<PhaseProgress::Scope> phase;
  if (phases != nullptr) phase.emplace(phases->begin({.name = "reading " + path}));
  const bool text = std::filesystem::path(path).extension() != ".bin";
  if (text && !tokenizer) tokenizer.emplace(data::Tokenizer::load(flags.model));
  data::DatasetOptions options{.path = path,
                               .tokenizer = tokenizer ? &*tokenizer : nullptr,
                               .seq_len = facts.seq_len,
                               .vocab_size = facts.vocab_size,
                               .model_dir = flags.model,
                               .long_text = flags.long_text,
                               .token_type = flags.token_type,
                               .version = facts.version};
  // What is said about records is for the files that have any.
  const bool elsewhere = data::has_records(flags.data) || data::has_records(flags.eval_data);
  if (data::has_records(path) || !elsewhere) options.records = flags.records;
  if (phase) {
    options.on_read = [phases](int64_t done, int64_t bytes) { phases->advance(done, bytes); };
  }
  auto dataset = data::open_dataset(options);
  if (phase) phase->finish();
  return dataset;
}

// Packs the first `count` samples of records, or all, into rows; returns whether it did. Tokens of
// a stream fill their windows already.
bool pack(std::unique_ptr<data::Dataset>& samples, const std::string& path,
          const std::optional<int64_t>& count) {
  if (!data::has_records(path) || samples->stats().chunked) return false;
  const int64_t all = samples->size();
  samples = data::pack_samples(std::move(samples), count.value_or(all));
  return true;
}

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
       stats.pairs || stats.chats ? "" : "--long-text chunk keeps all, or ");
}

// Adds notes about what is trained of conversations, and warns about what their template leaves
// out.
void note_chats(const Flags& flags, configs::Diagnostics& notes, const std::string& path,
                const data::DatasetStats& stats) {
  if (!stats.chats) return;
  if (!flags.train_on_given && flags.records.chats_train_on == data::TrainOn::kAssistant) {
    note(notes, "--train-on",
         "{}: the assistant's turns are trained, each up to and with the token that ends it; "
         "--train-on all trains every token, as TRL does by default",
         path);
  }
  if (stats.joined_parts > 0) {
    note(notes, "--data", "{}: the text parts of {} are joined, as the template cannot place parts",
         path, pluralize(stats.joined_parts, "message"));
  }
  for (const auto& [field, count] : stats.missing_fields) {
    warn(notes, "--chat-template", "{}: the template leaves out the words of {} in {}", path, field,
         pluralize(count, "message"));
  }
  if (stats.turns_without_end > 0) {
    warn(notes, "--chat-template",
         "{}: {} of {} trained turns have no token that ends them: the model may not learn to stop",
         path, stats.turns_without_end, stats.turns);
  }
}

// Adds notes about a format of records that was inferred, not given.
void note_inferred_format(const Flags& flags, configs::Diagnostics& notes, const std::string& path,
                          const data::Dataset& samples) {
  const data::DatasetStats stats = samples.stats();
  if (stats.pairs && !(stats.named_fields && flags.records.separator)) {
    note(notes, "--data",
         "{}: {}, joined as in \"{}\"; --prompt-field and --completion-field choose others, "
         "--separator another text between them",
         path, stats.format, stats.joint_example);
  } else if (!stats.named_fields && stats.fields != "text") {
    note(notes, "--data", "{}: {}; --data-format names another format", path, stats.format);
  }
  note_chats(flags, notes, path, stats);
  if (stats.rows > 0) {
    note(
        notes, "--packing",
        "{}: {} are in {}, {:.1f} in each: an epoch has as many fewer steps, and a step of as many "
        "rows more samples",
        path, pluralize(stats.samples, "sample"), pluralize(stats.rows, "row"),
        static_cast<double>(stats.samples) / static_cast<double>(stats.rows));
  } else if (flags.packing && (stats.chunked || !data::has_records(path))) {
    note(notes, "--packing", "{}: its samples fill their rows already, and are not packed", path);
  }
  if (!stats.own_special_tokens.empty())
    note(notes, "--data", "{}: {}", path, stats.own_special_tokens);
  if (stats.chunked && !flags.long_text_given) {
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

// Leaves out an incomplete `batch` at the end of every epoch.
void drop_incomplete_batch(Samples& samples, int64_t batch, const std::string& path,
                           configs::Diagnostics& notes) {
  const int64_t all = samples.train_size();
  samples.epoch_samples = all / batch * batch;
  if (samples.epoch_samples == 0) {
    throw Error(
        "{}: {} samples do not fill a global batch of {}, and dataloader_drop_last drops the rest",
        path, all, batch);
  }
  if (samples.epoch_samples == all) return;
  note(notes, "dataloader_drop_last",
       "dataloader_drop_last: {} of {} samples are left out of an epoch",
       all - samples.epoch_samples, all);
}

// Keeps the ends of epochs and their number of samples, which decide the place of each sample:
// both stay as the run began, however its command line is spelled now.
void keep_epoch_layout(Samples& samples, const ResumePlan& from, int64_t global_batch,
                       configs::Diagnostics& notes) {
  const Epochs& before = from.epochs;
  if (before.samples == 0) return;
  const bool short_steps = before.positions > before.samples;
  const bool known = short_steps || before.samples % from.batch != 0;
  if (known && short_steps != samples.whole_epochs) {
    samples.whole_epochs = short_steps;
    note(notes, "--epochs", "epochs end as when this run started: {}",
         short_steps ? "with a step of the remaining samples"
                     : "within a step, which continues in the next one");
  }
  if (from.batch == global_batch && before.samples <= samples.train_size())
    samples.epoch_samples = before.samples;
}

// Sets the layout of the epochs. Returns the number of steps.
int64_t count_train_steps(Samples& samples, const StartPoint& start,
                          const configs::BatchConfig& batch, bool drops,
                          configs::Diagnostics& notes) {
  const configs::Defaults& defaults = configs::defaults_for(start.flags.values);
  const int64_t global_batch = batch.train_batch_size;
  const auto steps_to_cover = [=](int64_t positions) {
    return std::max<int64_t>(1, (positions + global_batch - 1) / global_batch);
  };
  samples.epoch_samples = samples.train_size();
  samples.whole_epochs = defaults.whole_epochs;
  if (drops) {
    const int64_t dropped = defaults.whole_epochs ? batch.micro_step_samples() : global_batch;
    drop_incomplete_batch(samples, dropped, start.flags.data, notes);
  }
  if (start.resume_plan) keep_epoch_layout(samples, *start.resume_plan, global_batch, notes);
  // As in Trainer, an epoch has full steps and a last one with the remaining samples, or it ends
  // within a step, which continues in the next epoch.
  const int64_t epoch_steps = (samples.epoch_samples - 1) / global_batch + 1;
  samples.epoch_positions =
      samples.whole_epochs ? epoch_steps * global_batch : samples.epoch_samples;
  if (start.resume_plan) {
    samples.offset = resume_offset(*start.resume_plan, samples, global_batch);
  }
  if (start.flags.steps) return *start.flags.steps;
  const double epochs = start.flags.epochs.value_or(defaults.epochs);
  // Throws if there are too many.
  const int64_t consumed = samples_in_epochs(epochs, samples.epoch_positions);
  if (samples.whole_epochs) {
    const auto steps = static_cast<int64_t>(std::ceil(epochs * static_cast<double>(epoch_steps)));
    samples.train_samples = samples.num_samples_in(steps * global_batch);
    return steps_to_cover(steps * global_batch - samples.offset);
  }
  samples.train_samples = consumed;
  if (!drops) return steps_to_cover(consumed - samples.offset);
  const int64_t steps = std::max<int64_t>(1, (consumed - samples.offset) / global_batch);
  samples.train_samples = steps * global_batch + samples.offset;
  return steps;
}

}  // namespace

Datasets open_datasets(const Flags& flags, const DatasetFacts& facts, configs::Diagnostics& notes,
                       PhaseProgress* phases) {
  Datasets datasets{facts};
  std::optional<data::Tokenizer> tokenizer;
  const auto open = [&](const std::string& path) {
    return open_dataset(flags, facts, path, tokenizer, phases);
  };
  if (!flags.eval_only && !flags.data.empty()) datasets.train = open(flags.data);
  const bool packs =
      flags.packing && datasets.train && pack(datasets.train, flags.data, flags.max_train_samples);
  if (flags.max_train_samples && !packs) datasets.max_train_samples = *flags.max_train_samples;
  const bool evaluates = flags.eval_only || !flags.eval_data.empty();
  if (evaluates && !eval_path(flags).empty()) datasets.eval = open(eval_path(flags));
  if (tokenizer && tokenizer->num_dropped_chars() > 0) {
    warn(notes, "--data", "{}/tokenizer.json: {} characters of the data have no token: left out",
         flags.model, tokenizer->num_dropped_chars());
  }
  if (!datasets.eval) return datasets;
  const bool packs_eval = flags.eval_packing.value_or(flags.packing) &&
                          pack(datasets.eval, eval_path(flags), flags.max_eval_samples);
  datasets.eval_samples = datasets.eval->size();
  if (flags.max_eval_samples && !packs_eval) {
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
  Samples samples{std::move(datasets)};
  samples.total_steps = samples.train ? count_train_steps(samples, start, batch, drops, notes)
                                      : start.flags.steps.value_or(0);
  return samples;
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
