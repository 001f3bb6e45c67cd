#include "data/samples/record_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/json/json.h"
#include "base/machine/ordered_tasks.h"
#include "base/text/printable.h"
#include "base/text/units.h"
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

constexpr size_t kMaxShownBadRecords = 10;

// A RecordBatch is consecutive records, which a thread parses and encodes together.
struct RecordBatch {
  struct Item {
    TextRange json;  // in `text`
    int64_t line = 0;
  };

  std::string text;
  std::vector<ordered_json> rows;  // in place of the text, if the file is a table
  std::vector<Item> items;

  bool is_full() const {
    constexpr size_t kMaxBytes = size_t{128} << 10, kMaxItems = 512;
    return text.size() >= kMaxBytes || items.size() >= kMaxItems;
  }
};

struct EncodedBatch {
  struct Sequence {
    TokenRecord tokens;
    int64_t line = 0;
  };

  std::vector<Sequence> sequences;
  std::vector<std::string> bad_records;  // messages
};

class RecordReader {
 public:
  RecordReader(const DatasetOptions& options, TokenStoreWriter& writer)
      : options_(options),
        path_(options.path.string()),
        writer_(writer),
        tasks_(std::max<size_t>(options.num_threads, 1),
               [this](EncodedBatch batch) { write(batch); }) {
    for (size_t i = 0; i < std::max<size_t>(options.num_threads, 1); ++i)
      encoders_.push_back(std::make_unique<SampleEncoder>(options));
  }

  RecordFacts run() {
    facts_.blank_lines = for_each_record({.path = options_.path, .on_read = options_.on_read},
                                         [&](const RawRecord& record) {
                                           add(record);
                                           return !limit_ || num_records_ < *limit_;
                                         });
    submit();
    tasks_.finish();
    if (num_records_ == 0) throw Error("{} has no records", path_);
    if (num_sequences_ == 0) throw_all_bad();
    for (size_t i = 1; i < encoders_.size(); ++i) encoders_[0]->add_counts(*encoders_[i]);
    encoders_[0]->store_counts(facts_);
    return std::move(facts_);
  }

 private:
  void add(const RawRecord& record) {
    ++num_records_;
    if (!format_ && !init_format(record)) return;
    if (record.row != nullptr) {
      batch_.rows.push_back(std::move(*record.row));
    } else {
      batch_.text += record.text;
    }
    batch_.items.push_back({.json = {batch_.text.size() - record.text.size(), batch_.text.size()},
                            .line = record.line});
    if (batch_.is_full()) submit();
  }

  void submit() {
    if (batch_.items.empty()) return;
    tasks_.add([this, batch = std::make_shared<RecordBatch>(std::exchange(batch_, {}))](
                   size_t thread) { return encode(*batch, *encoders_[thread]); });
  }

  ordered_json parse(std::string_view text, int64_t line) const {
    JsonSource source{.name = path_, .line = line, .duplicate_keys = DuplicateKeyPolicy::kReject};
    source.limits.bytes = text.size();  // no limit on the length of a text
    source.exact_integers = options_.version >= 3;
    return parse_ordered_json(text, source);
  }

  // Calls `use`, and adds file and line to its Error.
  template <typename Use>
  auto at_line(int64_t line, const Use& use) const {
    try {
      return use();
    } catch (const Error& e) {
      throw Error("{}:{}: {}", path_, line, e.what());
    }
  }

  // Recognizes the format by a record. Returns false if that is not valid, and skipped.
  bool init_format(const RawRecord& raw) {
    try {
      const ordered_json record = raw.row != nullptr ? *raw.row : parse(raw.text, raw.line);
      at_line(raw.line, [&] {
        RecordFormat recognized = recognize(record);
        describe(recognized, recognized.read(record));
        format_ = std::move(recognized);
      });
      return true;
    } catch (const Error& e) {
      if (options_.on_bad_record == OnBadRecord::kFail) throw;
      add_bad_record(e.what());
      return false;
    }
  }

  RecordFormat recognize(const ordered_json& record) {
    RecordFields fields{.text = options_.records.text_field,
                        .prompt = options_.records.prompt_field,
                        .completion = options_.records.completion_field,
                        .messages = options_.records.messages_field,
                        .separator = options_.records.separator};
    facts_.named_fields =
        !(options_.records.format + fields.text + fields.prompt + fields.messages).empty();
    if (!options_.records.dataset_info.empty()) {
      const DatasetInfo info =
          read_dataset_info(options_.records.dataset_info, options_.records.dataset_name);
      facts_.named_fields = true;
      return RecordFormat::recognize(record, info.format, info.fields);
    }
    // Version 1 has no default separator.
    if (options_.version == 1 && !fields.separator) fields.separator = "";
    return RecordFormat::recognize(record, options_.records.format, fields);
  }

  // Stores what the first record says about all of them.
  void describe(const RecordFormat& format, const Record& first_record) {
    const RecordFields& fields = format.fields();
    facts_.format = format.description();
    facts_.fields = format.name();
    facts_.chats = std::holds_alternative<ChatRecord>(first_record);
    const auto* const text = std::get_if<TextRecord>(&first_record);
    const bool has_parts = text != nullptr && !text->is_complete;
    facts_.pairs = has_parts && !fields.prompt.empty();
    facts_.documents = has_parts && !facts_.pairs;
    const bool chunks = facts_.documents && options_.long_text == LongText::kChunk;
    if (!chunks) limit_ = record_limit(options_);
    if (facts_.documents) facts_.fields = fields.text;
    if (!facts_.pairs) return;
    facts_.fields =
        fmt::format("{}|{}|{}", fields.prompt, fields.separator.value_or(""), fields.completion);
    if (options_.records.pairs_train_on == TrainOn::kAll) facts_.fields += "|all";
    facts_.joint_example = make_joint_example(text->parts.front().text, text->parts.back().text);
  }

  EncodedBatch encode(RecordBatch& batch, SampleEncoder& encoder) const {
    EncodedBatch encoded;
    for (size_t i = 0; i < batch.items.size(); ++i) {
      const auto& [json, line] = batch.items[i];
      try {
        const ordered_json record =
            batch.rows.empty()
                ? parse(std::string_view(batch.text).substr(json.begin, json.end - json.begin),
                        line)
                : std::move(batch.rows[i]);
        encoded.sequences.push_back(
            {.tokens = at_line(line, [&] { return encoder.encode(format_->read(record)); }),
             .line = line});
      } catch (const Error& e) {
        if (options_.on_bad_record == OnBadRecord::kFail) throw;
        encoded.bad_records.emplace_back(e.what());
      }
    }
    return encoded;
  }

  void write(const EncodedBatch& batch) {
    for (const auto& [tokens, line] : batch.sequences)
      writer_.add(tokens.ids, tokens.trained, line);
    num_sequences_ += std::ssize(batch.sequences);
    for (const std::string& message : batch.bad_records) add_bad_record(message);
  }

  void add_bad_record(const std::string& message) {
    ++facts_.bad_records;
    if (facts_.first_bad_records.size() < kMaxShownBadRecords)
      facts_.first_bad_records.push_back(message);
  }

  [[noreturn]] void throw_all_bad() const {
    throw Error("{}: none of {} is valid; the first ones:\n  {}", path_,
                pluralize(num_records_, "record"), fmt::join(facts_.first_bad_records, "\n  "));
  }

  const DatasetOptions& options_;
  std::string path_;
  TokenStoreWriter& writer_;
  std::vector<std::unique_ptr<SampleEncoder>> encoders_;  // one per thread
  std::optional<RecordFormat> format_;
  std::optional<int64_t> limit_;  // of records
  RecordBatch batch_;
  RecordFacts facts_;
  int64_t num_records_ = 0, num_sequences_ = 0;
  OrderedTasks<EncodedBatch> tasks_;  // destroyed first, as its threads use the other members
};

}  // namespace

std::optional<int64_t> record_limit(const DatasetOptions& options) {
  // Earlier versions counted the samples that are left of the records.
  return options.version < 3 ? std::nullopt : options.max_samples;
}

RecordFacts read_tokens(const DatasetOptions& options, TokenStoreWriter& writer) {
  return has_records(options.path) ? read_records(options, writer)
                                   : read_text_file(options, writer);
}

RecordFacts read_records(const DatasetOptions& options, TokenStoreWriter& writer) {
  return RecordReader(options, writer).run();
}

}  // namespace zeroth::data
