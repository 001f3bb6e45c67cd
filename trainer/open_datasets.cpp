// Opening the data files of a run, and making its datasets of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/machine/cpu.h"
#include "base/text/units.h"
#include "data/samples/token_cache.h"
#include "data/tokenizer/tokenizer.h"
#include "trainer/flags/flags.h"
#include "trainer/report/phase_progress.h"
#include "trainer/samples.h"

namespace zeroth::trainer {
namespace {

// A DatasetOpener opens the files of a run's datasets.
class DatasetOpener {
 public:
  DatasetOpener(const Flags& flags, const DatasetFacts& facts, PhaseProgress* phases)
      : flags_(flags), facts_(facts), phases_(phases) {}

  std::unique_ptr<data::Dataset> open(const std::filesystem::path& path,
                                      const data::DataSource& source,
                                      const std::optional<int64_t>& max_samples);
  data::DatasetOptions options(const std::filesystem::path& path, const data::DataSource& source);

  int64_t num_dropped_chars() const { return tokenizer_ ? tokenizer_->num_dropped_chars() : 0; }

 private:
  const Flags& flags_;
  const DatasetFacts& facts_;
  PhaseProgress* phases_;
  std::optional<data::Tokenizer> tokenizer_;  // read on first use
};

data::DatasetOptions DatasetOpener::options(const std::filesystem::path& path,
                                            const data::DataSource& source) {
  const bool text = data::data_file_type(path).format != data::DataFormat::kTokens;
  if (text && !tokenizer_) tokenizer_.emplace(data::Tokenizer::load(flags_.model));
  data::DatasetOptions options{.path = path,
                               .tokenizer = tokenizer_ ? &*tokenizer_ : nullptr,
                               .seq_len = facts_.seq_len,
                               .vocab_size = facts_.vocab_size,
                               .model_dir = flags_.model,
                               .long_text = flags_.long_text,
                               .on_long = flags_.on_long,
                               .on_bad_record = flags_.on_bad_record,
                               .token_cache = flags_.token_cache,
                               .num_threads = allowed_cores().size(),
                               .token_type = flags_.token_type,
                               .version = facts_.version};
  // What is said about records is for the files that have any.
  const bool elsewhere = std::ranges::any_of(flags_.data, data::may_have_records) ||
                         std::ranges::any_of(flags_.eval_data, data::may_have_records);
  if (data::has_records(path) || !elsewhere) options.records = flags_.records;
  options.records.dataset_info = source.dataset_info;
  options.records.dataset_name = source.dataset_name;
  if (phases_ != nullptr) {
    options.on_read = [this](int64_t done, int64_t bytes) { phases_->advance(done, bytes); };
  }
  return options;
}

std::unique_ptr<data::Dataset> DatasetOpener::open(const std::filesystem::path& path,
                                                   const data::DataSource& source,
                                                   const std::optional<int64_t>& max_samples) {
  std::optional<PhaseProgress::Scope> phase;
  if (phases_ != nullptr) phase.emplace(phases_->begin({.name = "reading " + path.string()}));
  data::DatasetOptions options = this->options(path, source);
  options.max_samples = max_samples;
  auto dataset = data::open_dataset(options);
  if (phase) phase->finish();
  return dataset;
}

// An OpenedPart is the samples of a DataPart, of which some may be held out for evaluation.
struct OpenedPart {
  std::unique_ptr<data::Dataset> samples, held_out;  // null: none
  std::vector<OpenedFile> files;
  double weight = 1;
};

std::vector<OpenedPart> open_parts(const std::vector<DataPart>& parts,
                                   const std::optional<int64_t>& max_samples,
                                   DatasetOpener& opener) {
  std::vector<OpenedPart> opened;
  for (const DataPart& part : parts) {
    OpenedPart& own = opened.emplace_back();
    own.weight = part.source.weight.value_or(1);
    std::vector<std::unique_ptr<data::Dataset>> files;
    for (const auto& path : part.files) {
      files.push_back(opener.open(path, part.source, max_samples));
      own.files.push_back({path.string(), files.back()->stats()});
    }
    own.samples = data::concatenate(std::move(files));
  }
  return opened;
}

// Sets samples of --data aside for --val-split, of each part its share. They are the same in every
// run over the same files.
void hold_out(double val_split, std::vector<OpenedPart>& parts) {
  constexpr uint64_t kSeed = 0;
  int64_t all = 0;
  for (const OpenedPart& part : parts) all += part.samples->size();
  const auto total = static_cast<double>(all);
  const auto wanted = std::llround(val_split < 1 ? val_split * total : val_split);
  if (wanted < 1 || wanted >= all) {
    throw Error("--val-split {} sets {} of {} aside: leave at least one on each side", val_split,
                wanted, pluralize(all, "sample"));
  }
  int64_t seen = 0;
  const auto share_of = [&](int64_t samples) {
    return std::llround(static_cast<double>(wanted) * static_cast<double>(samples) / total);
  };
  for (OpenedPart& part : parts) {
    const int64_t size = part.samples->size();
    data::SplitDataset split =
        data::split_samples(std::move(part.samples), share_of(seen + size) - share_of(seen), kSeed);
    part.samples = std::move(split.train);
    part.held_out = std::move(split.held_out);
    seen += size;
  }
}

// Packs samples into rows. The windows of a stream are full already.
void pack(std::unique_ptr<data::Dataset>& samples) {
  if (samples == nullptr || samples->stats().windows) return;
  samples = data::pack_samples(std::move(samples));
}

// Returns the parts as one dataset; null if they have no samples.
std::unique_ptr<data::Dataset> join(std::vector<std::unique_ptr<data::Dataset>> parts) {
  std::erase(parts, nullptr);
  return parts.empty() ? nullptr : data::concatenate(std::move(parts));
}

// Returns the shares of the parts; null without weights. The weights are of records: a part with
// more of them in a row has fewer rows.
std::shared_ptr<const data::SampleMixture> mix(const std::vector<OpenedPart>& parts) {
  std::vector<data::MixturePart> shares;
  for (const OpenedPart& part : parts) {
    if (part.samples == nullptr) {
      throw Error("{}: --val-split leaves no sample of it", part.files.front().path);
    }
    const data::DatasetStats stats = part.samples->stats();
    const double per_row =
        stats.rows > 0 ? static_cast<double>(stats.samples) / static_cast<double>(stats.rows) : 1;
    shares.push_back({.size = part.samples->size(), .weight = part.weight / per_row});
  }
  return std::make_shared<const data::SampleMixture>(std::move(shares));
}

void add_files(const std::vector<OpenedPart>& parts, std::vector<OpenedFile>& files) {
  for (const OpenedPart& part : parts)
    files.insert(files.end(), part.files.begin(), part.files.end());
}

void open_train(const Flags& flags, DatasetOpener& opener, Datasets& datasets) {
  const std::vector<DataPart> found = find_data("--data", flags.data);
  std::vector<OpenedPart> parts = open_parts(found, flags.max_train_samples, opener);
  add_files(parts, datasets.train_files);
  if (flags.val_split) hold_out(*flags.val_split, parts);
  for (OpenedPart& part : parts) {
    if (flags.packing) pack(part.samples);
    if (flags.eval_packing.value_or(flags.packing)) pack(part.held_out);
  }
  if (found.front().source.weight) datasets.mixture = mix(parts);
  std::vector<std::unique_ptr<data::Dataset>> train, eval;
  for (OpenedPart& part : parts) {
    train.push_back(std::move(part.samples));
    eval.push_back(std::move(part.held_out));
  }
  datasets.train = join(std::move(train));
  datasets.eval = join(std::move(eval));
}

void open_eval(const Flags& flags, DatasetOpener& opener, Datasets& datasets) {
  const bool own = !flags.eval_data.empty();
  std::vector<OpenedPart> parts =
      open_parts(own ? find_data("--eval-data", flags.eval_data) : find_data("--data", flags.data),
                 flags.max_eval_samples, opener);
  add_files(parts, datasets.eval_files);
  std::vector<std::unique_ptr<data::Dataset>> eval;
  for (OpenedPart& part : parts) {
    if (flags.eval_packing.value_or(flags.packing)) pack(part.samples);
    eval.push_back(std::move(part.samples));
  }
  datasets.eval = join(std::move(eval));
}

}  // namespace

std::vector<DataPart> find_data(std::string_view flag, const std::vector<std::string>& values) {
  std::vector<DataPart> parts;
  for (const std::string& value : values) {
    const data::DataSource source = data::parse_data_source(value);
    if (source.weight && flag != "--data") {
      throw Error("{} {}: weights are for --data, all samples are evaluated once", flag, value);
    }
    parts.push_back({.files = data::expand_data_path(source.path), .source = source});
  }
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].source.weight.has_value() == parts[0].source.weight.has_value()) continue;
    throw Error("{} {} has {} weight, but {} has {}: give one to all or to none", flag, values[0],
                parts[0].source.weight ? "a" : "no", values[i],
                parts[i].source.weight ? "one" : "none");
  }
  return parts;
}

Datasets open_datasets(const Flags& flags, const DatasetFacts& facts, configs::Diagnostics& notes,
                       PhaseProgress* phases) {
  Datasets datasets{facts};
  DatasetOpener opener(flags, facts, phases);
  const bool evaluates = flags.eval_only || !flags.eval_data.empty();
  if (!flags.eval_only && !flags.data.empty()) open_train(flags, opener, datasets);
  if (evaluates && !eval_paths(flags).empty()) open_eval(flags, opener, datasets);
  if (opener.num_dropped_chars() > 0) {
    warn(notes, "--data", "{}/tokenizer.json: {} characters of the data have no token: left out",
         flags.model, opener.num_dropped_chars());
  }
  return datasets;
}

std::string tokenize(const Flags& flags, const DatasetFacts& facts, PhaseProgress* phases) {
  DatasetOpener opener(flags, facts, phases);
  std::optional<PhaseProgress::Scope> phase;
  if (phases != nullptr) phase.emplace(phases->begin({.name = "reading " + train_paths(flags)}));
  std::vector<data::DatasetOptions> files;
  for (const DataPart& part : find_data("--data", flags.data)) {
    for (const auto& path : part.files) files.push_back(opener.options(path, part.source));
  }
  const data::TokenCounts counts = data::write_token_files(files, flags.output, flags.overwrite);
  if (phase) phase->finish();
  return fmt::format("{}.bin: {}, {}, {} trained\n", flags.output,
                     pluralize(counts.sequences, "sequence"), pluralize(counts.ids, "token"),
                     counts.trained);
}

std::string train_paths(const Flags& flags) {
  return fmt::format("{}", fmt::join(flags.data, ", "));
}

const std::vector<std::string>& eval_files(const Flags& flags) {
  return flags.eval_data.empty() ? flags.data : flags.eval_data;
}

std::string eval_paths(const Flags& flags) {
  return fmt::format("{}", fmt::join(eval_files(flags), ", "));
}

}  // namespace zeroth::trainer
