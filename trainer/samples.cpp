#include "trainer/samples.h"

#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text/units.h"
#include "configs/resolve.h"
#include "data/samples/chat_encoder.h"
#include "trainer/flags/flags.h"
#include "trainer/start_point.h"

namespace zeroth::trainer {
namespace {

// Returns whether the model has a chat template that can be read.
bool has_chat_template(const std::string& model) {
  try {
    return data::read_model_templates(model).chat.has_value();
  } catch (const Error&) {
    return false;
  }
}

constexpr double kMaxLostFraction = 0.01;  // of all tokens or samples, without a warning

// Warns about the samples and tokens that --seq-len removes.
void warn_about_truncation(configs::Diagnostics& notes, const OpenedFile& file, int64_t length) {
  const auto& [path, stats] = file;
  const int64_t records = stats.samples + stats.dropped;
  if (static_cast<double>(stats.dropped) > kMaxLostFraction * static_cast<double>(records)) {
    warn(notes, "--seq-len",
         "{}: {} of {} samples are dropped, nothing to train within {} positions: raise --seq-len",
         path, stats.dropped, records, length);
    if (stats.dropped > stats.samples) return;
  }
  if (stats.truncated + stats.dropped == 0) return;
  const int64_t all = stats.tokens + stats.lost_tokens;
  const bool has_answers = stats.pairs || stats.chats;
  const double cut = static_cast<double>(stats.cut_labels) / static_cast<double>(stats.samples);
  if (has_answers && cut > kMaxLostFraction) {
    warn(notes, "--seq-len",
         "{}: of {}, {} cut within what is trained, without the token that ends it, beyond {} "
         "positions ({} of {} tokens): raise --seq-len, or leave them out by --on-long drop",
         path, pluralize(stats.samples, "sample"),
         stats.cut_labels == 1 ? "1 is" : fmt::format("{} are", stats.cut_labels), length,
         stats.lost_tokens, all);
    return;
  }
  const double lost = static_cast<double>(stats.lost_tokens) / static_cast<double>(all);
  if (lost <= kMaxLostFraction) return;
  warn(notes, "--seq-len",
       "{}: {:.0f} % of the tokens ({} of {}) are cut off, beyond {} positions: {}raise --seq-len",
       path, 100 * lost, stats.lost_tokens, all, length,
       has_answers ? "" : "--long-text chunk keeps all, or ");
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
    warn(notes, "--chat-template", "{}: the template leaves out {} in {}", path,
         field == "tools" ? "the tools" : "the words of " + field,
         pluralize(count, field == "tools" ? "record" : "message"));
  }
  if (stats.with_special_tokens > 0) {
    warn(
        notes, "--data",
        "{}: the words of {} hold special tokens, which are encoded as these: take them out unless "
        "they are meant",
        path, pluralize(stats.with_special_tokens, "message"));
  }
  if (stats.turns_without_end > 0) {
    warn(notes, "--chat-template",
         "{}: {} of {} trained turns have no token that ends them: the model may not learn to stop",
         path, stats.turns_without_end, stats.turns);
  }
}

// Adds a note that pairs of texts have no template, where the user may expect one.
void note_plain_pairs(const Flags& flags, configs::Diagnostics& notes, const OpenedFile& file) {
  const auto& [path, stats] = file;
  if (stats.chats || stats.fields == "sequences" || !(stats.pairs || stats.documents)) return;
  const bool can_convert = flags.data.size() == 1 && flags.records.dataset_info.empty() &&
                           flags.records.separator.value_or("").empty();
  if (!flags.records.chat_template.empty()) {
    warn(notes, "--chat-template", "{}: its records are texts: --chat-template has no effect",
         path);
  } else if (stats.pairs && has_chat_template(flags.model)) {
    note(notes, "--data",
         "{}: the pairs are trained as they are, without the model's chat template{}", path,
         can_convert ? "; --data-format query-response makes each a question and an answer in it"
                     : "");
  }
}

// Adds notes about the format of records, and what reading them has found.
void note_format(const Flags& flags, configs::Diagnostics& notes, const OpenedFile& file) {
  const auto& [path, stats] = file;
  if (stats.pairs && !(stats.named_fields && flags.records.separator)) {
    note(notes, "--data",
         "{}: {}, joined as in \"{}\"; --prompt-field and --completion-field choose others, "
         "--separator another text between them",
         path, stats.format, stats.joint_example);
  } else if (stats.fields == "sequences") {
    note(
        notes, "--data", "{}: each sequence of its index is a sample{}", path,
        stats.documents ? "; --long-text chunk joins them" : ", and its mask says what is trained");
  } else if (!stats.format.empty() && stats.fields != "text") {
    note(notes, "--data", "{}: {}{}", path, stats.format,
         stats.named_fields ? "" : "; --data-format names another format");
  }
  note_plain_pairs(flags, notes, file);
  if (stats.bad_records > 0) {
    warn(notes, "--on-bad-record", "{}: {} skipped as not valid; the first ones are", path,
         pluralize(stats.bad_records, "record"));
    for (const std::string& record : stats.first_bad_records)
      warn(notes, "--on-bad-record", "{}", record);
  }
  if (stats.pairs && stats.merged_boundaries > 0) {
    note(notes, "--data",
         "{}: in {} a token has bytes of both prompt and completion; it is trained", path,
         pluralize(stats.merged_boundaries, "record"));
  }
  if (!stats.token_cache.empty()) note(notes, "--token-cache", "{}: {}", path, stats.token_cache);
  note_chats(flags, notes, path, stats);
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

void note_packing(const Flags& flags, configs::Diagnostics& notes, const std::string& path,
                  const data::Dataset* samples, bool trains) {
  if (samples == nullptr) return;
  const data::DatasetStats stats = samples->stats();
  if (stats.rows > 0) {
    const double factor = static_cast<double>(stats.samples) / static_cast<double>(stats.rows);
    note(notes, "--packing", "{}: {} are in {}{}", path, pluralize(stats.samples, "sample"),
         pluralize(stats.rows, "row"),
         trains ? fmt::format(": with the same --micro-batch a step trains on {:.1f} times as many "
                              "samples, and an epoch has that many times fewer steps",
                              factor)
                : "");
  } else if (flags.packing) {
    note(notes, "--packing", "{}: its samples fill their rows already, and are not packed", path);
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
    drop_incomplete_batch(samples, dropped, train_paths(start.flags), notes);
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

void add_dataset_notes(const Flags& flags, const Datasets& datasets, configs::Diagnostics& notes) {
  if (datasets.version == 1) {
    note(notes, "--resume",
         "the samples are those of the earlier version that started the run: nothing separates "
         "prompt and completion by default, and incomplete windows are dropped");
  }
  for (const auto* const files : {&datasets.train_files, &datasets.eval_files}) {
    for (const OpenedFile& file : *files) {
      warn_about_truncation(notes, file, datasets.seq_len);
      note_format(flags, notes, file);
    }
  }
  if (flags.max_train_samples && datasets.train) {
    note(notes, "--max_train_samples",
         "only the beginning of each file of --data is used, at most {}",
         pluralize(*flags.max_train_samples, "sample"));
  }
  note_packing(flags, notes, train_paths(flags), datasets.train.get(), /*trains=*/true);
  note_packing(flags, notes, eval_paths(flags), datasets.eval.get(), /*trains=*/false);
  if (!datasets.mixture) return;
  note(notes, "--data",
       "the weights are shares of the records: an epoch has {} and ends when one file is used up; "
       "what is left of the others comes first in the next epoch",
       pluralize(datasets.mixture->epoch_size(),
                 datasets.train->stats().rows > 0 ? "row" : "sample"));
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
