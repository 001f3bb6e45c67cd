#include "data/samples/record_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "data/records/record.h"
#include "data/samples/special_tokens.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

void append(std::vector<int32_t>& ids, const std::vector<int32_t>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

std::string json_type_name(const json& value) {
  const std::string name = value.type_name();
  if (value.is_null()) return name;
  return (value.is_object() || value.is_array() ? "an " : "a ") + name;
}

void require_object(const json& value) {
  if (value.is_object()) return;
  throw Error("a JSON {}, not an object{}", value.type_name(),
              value.is_array() ? "; name a file with one array of objects .json" : "");
}

const std::string& string_field(const json& object, const std::string& field) {
  const auto found = object.find(field);
  if (found == object.end()) throw Error("no field '{}'", field);
  if (!found->is_string()) {
    throw Error("field '{}' is {}, not a string", field, json_type_name(*found));
  }
  return found->get_ref<const std::string&>();
}

// Returns the boundary of the prompt and the completion, with some characters on both sides.
std::string make_joint_example(const std::string& prompt, const std::string& separator,
                               const std::string& completion) {
  constexpr int kShown = 16;
  size_t begin = prompt.size(), end = 0;
  for (int i = 0; i < kShown && begin > 0; ++i) begin = previous_char(prompt, begin);
  for (int i = 0; i < kShown && end < completion.size(); ++i) end += utf8_length(completion[end]);
  return printable(prompt.substr(begin) + separator + completion.substr(0, end));
}

class RecordReader {
 public:
  explicit RecordReader(const DatasetOptions& options)
      : options_(options), path_(options.path.string()) {
    if (options.tokenizer == nullptr) throw Error("{}: text needs a tokenizer.json", path_);
    const auto end_of_text = options.tokenizer->end_of_text();
    if (!end_of_text) {
      throw Error("{}: the end-of-text token is unknown: set eos_token in tokenizer_config.json",
                  path_);
    }
    encoded_.end_of_text = *end_of_text;
    special_tokens_.emplace(*options.tokenizer, *end_of_text, options.version == 1);
    if (options.prompt_field.empty() != options.completion_field.empty()) {
      throw Error("--prompt-field '{}' and --completion-field '{}' must be given together",
                  options.prompt_field, options.completion_field);
    }
  }

  EncodedRecords run() {
    const MappedFile file(options_.path);
    const auto on_record = [&](std::string_view record, int64_t line) {
      if (options_.on_read) {
        options_.on_read(record.data() - file.text().data(), static_cast<int64_t>(file.size()));
      }
      read_record(record, line);
    };
    if (options_.path.extension() == ".json") {
      for_each_element(file.text(), path_, on_record);
    } else {
      encoded_.stats.blank_lines = for_each_line(file.text(), on_record);
    }
    encoded_.stats.own_special_tokens = special_tokens_->own_special_tokens();
    if (!has_records_) throw Error("{} has no records", path_);
    if (!encoded_.stats.packed && encoded_.records.empty()) {
      throw Error("{}: no sample is left ({} dropped: nothing to train within seq_len {})", path_,
                  encoded_.stats.dropped, options_.seq_len);
    }
    return std::move(encoded_);
  }

 private:
  json parse(std::string_view text, int64_t line) const {
    JsonSource source{.name = path_, .line = line, .duplicate_keys = DuplicateKeyPolicy::kReject};
    source.limits.bytes = text.size();  // no limit on the length of a text
    return parse_json(text, source);
  }

  void read_record(std::string_view record, int64_t line) {
    const json object = parse(record, line);
    try {
      require_object(object);
      if (!has_records_) init_fields(object);
      has_records_ = true;
      add(object, line);
    } catch (const Error& e) {
      throw Error("{}:{}: {}", path_, line, e.what());
    }
  }

  void init_fields(const json& first_record) {
    DatasetStats& stats = encoded_.stats;
    const bool named = !options_.prompt_field.empty();
    if (named) fields_ = {.prompt = options_.prompt_field, .completion = options_.completion_field};
    if (!named) fields_ = choose_fields(first_record);
    stats.pairs = fields_.text.empty();
    stats.packed = !stats.pairs && options_.long_text == LongText::kChunk;
    if (!stats.pairs) {
      if (options_.separator && !options_.separator->empty()) {
        throw Error("--separator goes between prompt and completion, but the samples are 'text'");
      }
      stats.fields = fields_.text;
      return;
    }
    const bool concatenated =
        options_.version == 1 || (fields_.prompt == "prompt" && fields_.completion == "completion");
    separator_ = options_.separator.value_or(concatenated ? "" : "\n");
    stats.fields = fmt::format("{}|{}|{}", fields_.prompt, separator_, fields_.completion);
    stats.joint_example = make_joint_example(string_field(first_record, fields_.prompt), separator_,
                                             string_field(first_record, fields_.completion));
    if (fields_.guessed) {
      stats.guessed_fields =
          fmt::format("'{}' is the prompt, '{}' is trained", fields_.prompt, fields_.completion);
    }
  }

  void add(const json& object, int64_t line) {
    const Tokenizer& tokenizer = *options_.tokenizer;
    std::vector<int32_t> ids;
    if (fields_.text.empty()) {
      ids = tokenizer.encode(string_field(object, fields_.prompt) + separator_);
    }
    const size_t prompt_size = ids.size();
    const std::string& last =
        string_field(object, fields_.text.empty() ? fields_.completion : fields_.text);
    append(ids, tokenizer.encode(last));
    size_t begin = 0;
    ids = special_tokens_->add_special_tokens(ids, prompt_size, last, begin);
    for (const int32_t id : ids) {
      if (id < options_.vocab_size) continue;
      throw Error("token id {}, but the model's vocabulary has {} ids", id, options_.vocab_size);
    }
    if (encoded_.stats.packed) return append(encoded_.ids, ids);
    std::vector<bool> trained(ids.size(), true);
    if (fields_.text.empty()) std::fill_n(trained.begin(), begin + prompt_size, false);
    append_record({.ids = std::move(ids), .trained = std::move(trained)}, line);
  }

  void append_record(TokenRecord sample, int64_t line) {
    DatasetStats& stats = encoded_.stats;
    const int64_t whole = std::ssize(sample.ids) - 1;
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
    append(encoded_.ids, sample.ids);
    encoded_.trained.insert(encoded_.trained.end(), sample.trained.begin(), sample.trained.end());
    ++stats.samples;
    stats.truncated += length < whole ? 1 : 0;
    stats.lost_tokens += whole - length;
    stats.tokens += length;
    stats.num_label_tokens += labels;
  }

  const DatasetOptions& options_;
  std::string path_;
  bool has_records_ = false;
  SampleFields fields_;
  std::string separator_;
  std::optional<SpecialTokens> special_tokens_;
  EncodedRecords encoded_;
};

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kBlankLine = " \t\r\n\v\f";  // includes blanks that JSON does not allow

// A JsonCursor is a position in a text, which advances value by value.
class JsonCursor {
 public:
  JsonCursor(std::string_view text, int64_t line, const std::string& path)
      : text_(text), line_(line), path_(path) {}

  int64_t line() const { return line_; }

  // Skips blanks; returns whether the text ends there.
  bool at_end() {
    while (at_ < text_.size() && kBlank.find(text_[at_]) != std::string_view::npos) advance();
    return at_ == text_.size();
  }
  bool next_is(char expected_char) { return !at_end() && text_[at_] == expected_char; }

  bool consume(char expected_char) {
    if (!next_is(expected_char)) return false;
    advance();
    return true;
  }

  // Consumes an object, array or string to its end, or anything else up to a separator.
  std::string_view consume_value() {
    if (at_end()) return {};
    const size_t begin = at_;
    size_t depth = 0;
    do {
      if (text_[at_] == '"') {
        skip_text();
        continue;
      }
      const bool opens = text_[at_] == '{' || text_[at_] == '[';
      const bool closes = text_[at_] == '}' || text_[at_] == ']';
      if (depth == 0 && (closes || text_[at_] == ',' || text_[at_] == ':')) break;
      depth += opens ? 1 : 0;
      depth -= closes ? 1 : 0;
      advance();
    } while (at_ < text_.size() && (depth > 0 || is_inside_word()));
    return text_.substr(begin, at_ - begin);
  }

  [[noreturn]] void throw_expected(std::string_view expected) const {
    throw Error("{}:{}: expected {}", path_, line_, expected);
  }

 private:
  void advance() {
    if (text_[at_] == '\n') ++line_;
    ++at_;
  }

  void skip_text() {
    advance();
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) advance();
      advance();
    }
    if (at_ < text_.size()) advance();
  }

  // Returns whether the position is within a number or a literal: neither the byte before nor the
  // next one is blank or structural.
  bool is_inside_word() const {
    constexpr std::string_view kStructure = " \t\r\n{}[],:\"";
    return kStructure.find(text_[at_]) == std::string_view::npos &&
           kStructure.find(text_[at_ - 1]) == std::string_view::npos;
  }

  std::string_view text_;
  size_t at_ = 0;
  int64_t line_;
  const std::string& path_;
};

void for_each_array_element(JsonCursor& cursor, const OnRecord& on_record) {
  cursor.consume('[');
  if (cursor.consume(']')) return;
  do {
    cursor.at_end();
    const int64_t line = cursor.line();
    const std::string_view record = cursor.consume_value();
    if (record.empty()) cursor.throw_expected("a record");
    on_record(record, line);
  } while (cursor.consume(','));
  if (!cursor.consume(']')) cursor.throw_expected("',' or ']' after a record");
}

// Calls `on_record` for the elements of `object`'s "data": [...]; returns whether it has that.
bool for_each_data_element(std::string_view object, int64_t line, const std::string& path,
                           const OnRecord& on_record) {
  JsonCursor cursor(object, line, path);
  cursor.consume('{');
  do {
    const std::string_view key = cursor.consume_value();
    if (!cursor.consume(':')) return false;
    if (key == "\"data\"" && cursor.next_is('[')) {
      for_each_array_element(cursor, on_record);
      return true;
    }
    cursor.consume_value();
  } while (cursor.consume(','));
  return false;
}

}  // namespace

EncodedRecords read_records(const DatasetOptions& options) {
  return RecordReader(options).run();
}

int64_t for_each_line(std::string_view file, const OnRecord& on_record) {
  int64_t blank = 0;
  file = without_byte_order_mark(file);
  for (int64_t line = 1; !file.empty(); ++line) {
    const size_t end = std::min(file.find('\n'), file.size());
    const std::string_view record = file.substr(0, end);
    if (without_byte_order_mark(record).find_first_not_of(kBlankLine) == std::string_view::npos) {
      ++blank;
    } else {
      on_record(record, line);
    }
    file.remove_prefix(std::min(end + 1, file.size()));
  }
  return blank;
}

void for_each_element(std::string_view file, const std::string& path, const OnRecord& on_record) {
  file = without_byte_order_mark(file);
  JsonCursor cursor(file, 1, path);
  if (cursor.next_is('[')) {
    for_each_array_element(cursor, on_record);
    if (!cursor.at_end()) cursor.throw_expected("nothing after the array");
    return;
  }
  for (bool first = true; !cursor.at_end(); first = false) {
    const int64_t line = cursor.line();
    const std::string_view record = cursor.consume_value();
    if (record.empty()) cursor.throw_expected("a record");
    const bool alone = first && cursor.at_end();
    if (!alone || !for_each_data_element(record, line, path, on_record)) on_record(record, line);
  }
}

}  // namespace zeroth::data
