#include "trainer/samples.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>

#include "data/tokenizer/tokenizer.h"

namespace zeroth::trainer {
namespace {

// DatasetOpener opens the datasets of one run; they share a tokenizer, which is read on first use.
class DatasetOpener {
 public:
  DatasetOpener(const Flags& flags, const Samples& samples, int64_t vocab_size,
                PhaseProgress* phases)
      : flags_(flags),
        seq_len_(samples.seq_len),
        version_(samples.version),
        vocab_size_(vocab_size),
        phases_(phases) {}

  std::unique_ptr<data::Dataset> open(const std::string& path) {
    std::optional<PhaseProgress::Scope> phase;
    if (phases_ != nullptr) phase.emplace(phases_->begin({.name = "reading " + path}));
    const bool text = std::filesystem::path(path).extension() != ".bin";
    if (text && !tokenizer_) tokenizer_.emplace(data::Tokenizer::load(flags_.model));
    data::DatasetOptions options{.path = path,
                                 .tokenizer = tokenizer_ ? &*tokenizer_ : nullptr,
                                 .seq_len = seq_len_,
                                 .vocab_size = vocab_size_,
                                 .long_text = flags_.long_text,
                                 .token_type = flags_.token_type,
                                 .version = version_};
    // The fields apply to the files that have any.
    const bool elsewhere = data::has_records(flags_.data) || data::has_records(flags_.eval_data);
    if (data::has_records(path) || !elsewhere) {
      options.prompt_field = flags_.prompt_field;
      options.completion_field = flags_.completion_field;
      options.separator = flags_.separator;
    }
    if (!phase) return data::open_dataset(options);
    options.on_read = [this](int64_t done, int64_t bytes) { phases_->advance(done, bytes); };
    auto dataset = data::open_dataset(options);
    phase->finish();
    return dataset;
  }

  // Returns the dropped characters of all texts, see data::Tokenizer.
  int64_t num_dropped_chars() const { return tokenizer_ ? tokenizer_->num_dropped_chars() : 0; }

 private:
  const Flags& flags_;
  int64_t seq_len_;
  int version_;
  int64_t vocab_size_;
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

const std::string& eval_path(const Flags& flags) {
  return flags.eval_data.empty() ? flags.data : flags.eval_data;
}

}  // namespace

int64_t Samples::num_samples_in(int64_t positions) const {
  if (epoch_samples == 0) return 0;
  const int64_t rest = std::min(positions % epoch_positions, epoch_samples);
  return std::min(positions / epoch_positions * epoch_samples + rest, train_samples);
}

void open_samples(const Flags& flags, int64_t vocab_size, Samples& samples,
                  configs::Diagnostics& notes, PhaseProgress* phases) {
  DatasetOpener opener(flags, samples, vocab_size, phases);
  if (!flags.eval_only && !flags.data.empty()) samples.train = opener.open(flags.data);
  if (flags.max_train_samples) samples.max_train_samples = *flags.max_train_samples;
  const bool evaluates = flags.eval_only || !flags.eval_data.empty();
  if (evaluates && !eval_path(flags).empty()) samples.eval = opener.open(eval_path(flags));
  if (opener.num_dropped_chars() > 0) {
    warn(notes, "--data", "{}/tokenizer.json: {} characters of the data have no token: left out",
         flags.model, opener.num_dropped_chars());
  }
  if (!samples.eval) return;
  samples.eval_samples = samples.eval->size();
  if (flags.max_eval_samples) {
    samples.eval_samples = std::min(samples.eval_samples, *flags.max_eval_samples);
  }
}

void add_dataset_notes(const Flags& flags, const Samples& samples, configs::Diagnostics& notes) {
  const auto add_notes = [&](const data::Dataset* dataset, const std::string& path) {
    if (dataset == nullptr) return;
    warn_about_truncation(notes, path, *dataset);
    note_inferred_format(flags, notes, path, *dataset);
  };
  if (samples.version == 1) {
    note(notes, "--resume",
         "the samples are those of the earlier version that started the run: nothing separates "
         "prompt and completion by default, and incomplete windows are dropped");
  }
  add_notes(samples.train.get(), flags.data);
  add_notes(samples.eval.get(), eval_path(flags));
}

}  // namespace zeroth::trainer
