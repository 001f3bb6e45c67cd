#include "data/samples/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "data/records/data_files.h"
#include "data/samples/token_cache.h"
#include "data/samples/token_windows.h"
#include "data/tokenizer/tokenizer.h"

namespace zeroth::data {
namespace {

// The samples of sequences whose trained tokens are known: one of each, or none, or several of one
// that is too long.
class SequenceSamples : public Dataset {
 public:
  SequenceSamples(const DatasetOptions& options, StoredTokens tokens);

  int64_t size() const override { return std::ssize(samples_); }
  int64_t seq_len() const override { return seq_len_; }
  int64_t length(int64_t index) const override { return at(index).length; }
  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override;
  int64_t last_id(int64_t index) const override;
  std::string sample_name(int64_t index) const override { return name_of(at(index).sequence); }
  DatasetStats stats() const override { return stats_; }

 private:
  struct Sample {
    int64_t begin;  // in the ids of the store
    int32_t length;
    int32_t sequence;
  };

  const Sample& at(int64_t index) const {
    ZEROTH_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
    return samples_[static_cast<size_t>(index)];
  }
  std::string name_of(int64_t sequence) const;
  void add(const DatasetOptions& options, int64_t sequence);
  bool add_sample(int64_t sequence, int64_t begin, int64_t length);
  void check_labels(const DatasetOptions& options) const;

  std::string path_;
  int64_t seq_len_;
  int64_t vocab_size_;
  int64_t padding_;  // id behind a sample
  std::shared_ptr<const TokenStore> store_;
  DatasetStats stats_;
  std::vector<Sample> samples_;
};

SequenceSamples::SequenceSamples(const DatasetOptions& options, StoredTokens tokens)
    : path_(options.path.string()),
      seq_len_(options.seq_len),
      vocab_size_(options.vocab_size),
      padding_(options.tokenizer == nullptr ? 0 : options.tokenizer->end_of_text().value_or(0)),
      store_(std::move(tokens.store)),
      stats_{std::move(tokens.stats)} {
  const int64_t limit = options.max_samples.value_or(std::numeric_limits<int64_t>::max());
  const int64_t count = store_->num_sequences();
  ZEROTH_CHECK(count <= std::numeric_limits<int32_t>::max(), "{} sequences", count);
  const bool counts_records = options.version >= 3;
  for (int64_t i = 0; i < count && (counts_records ? i : size()) < limit; ++i) add(options, i);
  stats_.samples = size();
  check_labels(options);
  store_->drop_pages();
}

std::string SequenceSamples::name_of(int64_t sequence) const {
  const int64_t line = store_->line(sequence);
  return line > 0 ? fmt::format("{}:{}", path_, line)
                  : fmt::format("{} sequence {}", path_, sequence);
}

void SequenceSamples::add(const DatasetOptions& options, int64_t sequence) {
  const auto [begin, ids] = store_->sequence(sequence);
  const int64_t length = std::max<int64_t>(ids - 1, 0);
  const bool fits = length <= seq_len_;
  if (!fits && options.on_long == OnLong::kFail) {
    throw Error("{}: {} positions, but --seq-len is {}: --on-long cut, drop or split uses the file",
                name_of(sequence), length, seq_len_);
  }
  const bool drops = !fits && options.on_long == OnLong::kDrop;
  const bool splits = !fits && options.on_long == OnLong::kSplit;
  int64_t kept = 0, num_samples = 0;
  for (int64_t done = 0; done < length && !drops; done += seq_len_) {
    const int64_t part = std::min(length - done, seq_len_);
    if (add_sample(sequence, begin + done, part)) {
      kept += part;
      ++num_samples;
    }
    if (!splits) break;
  }
  stats_.lost_tokens += length - kept;
  stats_.too_long += drops ? 1 : 0;
  stats_.dropped += num_samples == 0 && !drops ? 1 : 0;
  stats_.split += splits && num_samples > 0 ? 1 : 0;
  const bool is_cut = !splits && num_samples > 0 && kept < length;
  stats_.truncated += is_cut ? 1 : 0;
  const int64_t end = begin + 1 + length;
  stats_.cut_labels += is_cut && store_->count_trained(end - length + kept, end) > 0 ? 1 : 0;
}

// Adds a sample; returns false if it has no label.
bool SequenceSamples::add_sample(int64_t sequence, int64_t begin, int64_t length) {
  // The first id is no target.
  const int64_t labels = store_->count_trained(begin + 1, begin + 1 + length);
  if (labels == 0) return false;
  samples_.push_back({.begin = begin,
                      .length = static_cast<int32_t>(length),
                      .sequence = static_cast<int32_t>(sequence)});
  stats_.tokens += length;
  stats_.num_label_tokens += labels;
  return true;
}

// Throws an Error for a file that would train a model on nothing, or on what it must not write.
void SequenceSamples::check_labels(const DatasetOptions& options) const {
  if (samples_.empty()) {
    throw Error("{}: no sample is left ({} dropped: nothing to train within seq_len {}{})", path_,
                stats_.dropped, seq_len_,
                stats_.too_long > 0 ? fmt::format("; {} longer", stats_.too_long) : "");
  }
  if (!stats_.chats || options.records.chats_train_on == TrainOn::kAll) return;
  if (stats_.turns > 0 && stats_.turns_without_end == stats_.turns) {
    throw Error(
        "{}: the chat template writes no token that ends an assistant's turn, so the model would "
        "not learn to stop: use another one with --chat-template, or --train-on all",
        path_);
  }
  if (stats_.num_label_tokens == stats_.tokens) {
    throw Error(
        "{}: every token of every chat would be trained, questions too: --train-on all says that "
        "this is meant",
        path_);
  }
}

void SequenceSamples::fill(int64_t index, std::span<int64_t> tokens,
                           std::span<int64_t> targets) const {
  const Sample& sample = at(index);
  ZEROTH_CHECK(std::ssize(tokens) >= sample.length && tokens.size() == targets.size(),
               "{} tokens, {} targets, length {}", tokens.size(), targets.size(), sample.length);
  std::fill(tokens.begin() + sample.length, tokens.end(), padding_);
  std::fill(targets.begin(), targets.end(), kIgnoreIndex);
  const auto copy = [&](const auto& ids) {
    for (int64_t i = 0; i <= sample.length; ++i) {
      const auto id = static_cast<int64_t>(ids[sample.begin + i]);
      if (id >= vocab_size_) throw_invalid_token_id(path_, sample.begin + i, id, vocab_size_);
      if (i < sample.length) tokens[i] = id;
      if (i > 0 && store_->is_trained(sample.begin + i)) targets[i - 1] = id;
    }
  };
  std::visit(copy, store_->ids());
}

int64_t SequenceSamples::last_id(int64_t index) const {
  const Sample& sample = at(index);
  const auto id = static_cast<size_t>(sample.begin + sample.length);
  return std::visit([&](const auto& ids) { return int64_t{ids[id]}; }, store_->ids());
}

// Returns the samples of a file of records or of a text.
std::unique_ptr<Dataset> open_text(const DatasetOptions& options) {
  StoredTokens tokens = open_tokens(options);
  const bool chunks = !has_records(options.path) ||
                      (tokens.stats.documents && options.long_text == LongText::kChunk);
  if (!chunks) return std::make_unique<SequenceSamples>(options, std::move(tokens));
  tokens.stats.chunked = tokens.stats.documents;
  const TokenIds ids = tokens.store->ids();
  return std::make_unique<TokenWindows>(
      options,
      TokenStream{.owner = std::move(tokens.store), .ids = ids, .stats = std::move(tokens.stats)});
}

// Returns the samples of a .bin file: the sequences of its index, which a mask may say what is
// trained of, or windows of all ids if they have no index or are joined.
std::unique_ptr<Dataset> open_binary(const DatasetOptions& options) {
  TokenStream stream = map_binary_tokens(options);
  const auto paths = token_store_paths(options.path);
  if (paths.mask && !paths.index) {
    throw Error("{} has a mask, but no index (.idx) that says where its samples are",
                options.path.string());
  }
  const bool joins = options.long_text == LongText::kChunk || options.version < 3;
  if (!paths.index || (joins && !paths.mask))
    return std::make_unique<TokenWindows>(options, std::move(stream));
  StoredTokens tokens{.store = std::make_shared<const TokenStore>(paths), .stats = {}};
  tokens.stats.documents = !paths.mask;
  tokens.stats.fields = "sequences";
  return std::make_unique<SequenceSamples>(options, std::move(tokens));
}

}  // namespace

int64_t Dataset::last_id(int64_t index) const {
  std::vector<int64_t> tokens(static_cast<size_t>(length(index))), targets(tokens.size());
  fill(index, tokens, targets);
  return targets.back();
}

bool has_records(const std::filesystem::path& path) {
  return data_file_type(path).has_records();
}

std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options) {
  ZEROTH_CHECK(options.seq_len >= 1 && options.vocab_size >= 1, "seq_len {}, vocab_size {}",
               options.seq_len, options.vocab_size);
  if (const std::string why = sample_file_error(options.path); !why.empty()) {
    throw Error("{}{}", options.path.string(), why);
  }
  if (has_records(options.path)) return open_text(options);
  if (!options.records.prompt_field.empty() || !options.records.completion_field.empty()) {
    throw Error("{}: --prompt-field and --completion-field are for .jsonl and other records",
                options.path.string());
  }
  return data_file_type(options.path).format == DataFormat::kText ? open_text(options)
                                                                  : open_binary(options);
}

}  // namespace zeroth::data
