#include "data/samples/record_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "data/records/record_format.h"
#include "data/records/record_source.h"
#include "data/samples/sample_encoder.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using nlohmann::ordered_json;

// Returns the boundary of the prompt and the completion, with some characters on both sides.
std::string make_joint_example(const std::string& prompt, const std::string& completion) {
  constexpr int kShown = 16;
  size_t begin = prompt.size(), end = 0;
  for (int i = 0; i < kShown && begin > 0; ++i) begin = previous_char(prompt, begin);
  for (int i = 0; i < kShown && end < completion.size(); ++i) end += utf8_length(completion[end]);
  return printable(prompt.substr(begin) + completion.substr(0, end));
}

class RecordReader {
 public:
  explicit RecordReader(const DatasetOptions& options)
      : options_(options), path_(options.path.string()), encoder_(options) {
    encoded_.end_of_text = encoder_.end_of_text();
  }

  EncodedRecords run() {
    encoded_.stats.blank_lines = for_each_record(
        {.path = options_.path, .on_read = options_.on_read}, [&](const RawRecord& record) {
          read_record(record);
          return true;
        });
    if (!format_) throw Error("{} has no records", path_);
    encoder_.add_to(encoded_.stats);
    check_labels();
    return std::move(encoded_);
  }

 private:
  ordered_json parse(std::string_view text, int64_t line) const {
    JsonSource source{.name = path_, .line = line, .duplicate_keys = DuplicateKeyPolicy::kReject};
    source.limits.bytes = text.size();  // no limit on the length of a text
    source.exact_integers = options_.version >= 3;
    return parse_ordered_json(text, source);
  }

  void read_record(const RawRecord& raw) {
    const int64_t line = raw.line;
    const ordered_json object = raw.row != nullptr ? std::move(*raw.row) : parse(raw.text, line);
    try {
      if (!format_) init_format(object);
      Record record = format_->read(object);
      if (encoded_.stats.format.empty()) describe(record);
      add(encoder_.encode(std::move(record)), line);
    } catch (const Error& e) {
      throw Error("{}:{}: {}", path_, line, e.what());
    }
  }

  void init_format(const ordered_json& first_record) {
    RecordFields fields{.text = options_.records.text_field,
                        .prompt = options_.records.prompt_field,
                        .completion = options_.records.completion_field,
                        .messages = options_.records.messages_field,
                        .separator = options_.records.separator};
    // Version 1 has no default separator.
    if (options_.version == 1 && !fields.separator) fields.separator = "";
    format_ = RecordFormat::recognize(first_record, options_.records.format, fields);
    encoded_.stats.named_fields =
        !(options_.records.format + fields.text + fields.prompt + fields.messages).empty();
  }

  // Stores what the first record says about all of them.
  void describe(const Record& first_record) {
    DatasetStats& stats = encoded_.stats;
    const RecordFields& fields = format_->fields();
    stats.format = format_->description();
    stats.fields = format_->name();
    stats.chats = std::holds_alternative<ChatRecord>(first_record);
    const auto* const text = std::get_if<TextRecord>(&first_record);
    if (text == nullptr || text->is_complete) return;
    stats.pairs = !fields.prompt.empty();
    stats.chunked = !stats.pairs && options_.long_text == LongText::kChunk;
    stats.fields = fields.text;
    if (!stats.pairs) return;
    stats.fields =
        fmt::format("{}|{}|{}", fields.prompt, fields.separator.value_or(""), fields.completion);
    if (options_.records.pairs_train_on == TrainOn::kAll) stats.fields += "|all";
    stats.joint_example = make_joint_example(text->parts.front().text, text->parts.back().text);
  }

  void add(TokenRecord sample, int64_t line) {
    DatasetStats& stats = encoded_.stats;
    if (stats.chunked) {
      encoded_.ids.insert(encoded_.ids.end(), sample.ids.begin(), sample.ids.end());
      return;
    }
    const int64_t whole = std::max<int64_t>(std::ssize(sample.ids) - 1, 0);
    const int64_t length = std::min(whole, options_.seq_len);
    sample.ids.resize(length + 1);
    sample.trained.resize(length + 1);
    // The first id is no target.
    const int64_t labels = std::count(sample.trained.begin() + 1, sample.trained.end(), true);
    if (labels == 0) {
      ++stats.dropped;
      stats.lost_tokens += whole;
      return;
    }
    encoded_.records.push_back(
        {.begin = std::ssize(encoded_.ids), .length = static_cast<int32_t>(length), .line = line});
    encoded_.ids.insert(encoded_.ids.end(), sample.ids.begin(), sample.ids.end());
    encoded_.trained.insert(encoded_.trained.end(), sample.trained.begin(), sample.trained.end());
    ++stats.samples;
    stats.truncated += length < whole ? 1 : 0;
    stats.lost_tokens += whole - length;
    stats.tokens += length;
    stats.num_label_tokens += labels;
  }

  // Throws an Error for a file that would train a model on nothing, or on what it must not write.
  void check_labels() const {
    const DatasetStats& stats = encoded_.stats;
    if (!stats.chunked && encoded_.records.empty()) {
      throw Error("{}: no sample is left ({} dropped: nothing to train within seq_len {})", path_,
                  stats.dropped, options_.seq_len);
    }
    if (!stats.chats || options_.records.chats_train_on == TrainOn::kAll) return;
    if (stats.turns_without_end == stats.turns) {
      throw Error(
          "{}: the chat template writes no token that ends an assistant's turn, so the model would "
          "not learn to stop: use another one with --chat-template, or --train-on all",
          path_);
    }
    if (stats.num_label_tokens == stats.tokens) {
      throw Error(
          "{}: every token of every chat would be trained, questions too: --train-on all says that "
          "this is meant",
          path_);
    }
  }

  const DatasetOptions& options_;
  std::string path_;
  SampleEncoder encoder_;
  std::optional<RecordFormat> format_;
  EncodedRecords encoded_;
};

}  // namespace

EncodedRecords read_records(const DatasetOptions& options) {
  return RecordReader(options).run();
}

}  // namespace zeroth::data
