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
#include "data/samples/json_records.h"
#include "data/samples/sample_fields.h"
#include "data/samples/special_tokens.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8.h"

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

void check_ids(const std::vector<int32_t>& ids, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id >= vocab_size) {
      throw Error("token id {}, but the model's vocabulary has {} ids", id, vocab_size);
    }
  }
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
    separator_ =
        options_.separator.value_or(options_.version > 1 ? default_separator(fields_) : "");
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
    check_ids(ids, options_.vocab_size);
    // Targets are shifted by one.
    const auto first_label =
        fields_.text.empty() ? std::max<int64_t>(static_cast<int64_t>(begin + prompt_size) - 1, 0)
                             : 0;
    if (encoded_.stats.packed) {
      append(encoded_.ids, ids);
    } else {
      append_record(std::move(ids), first_label, line);
    }
  }

  void append_record(std::vector<int32_t> ids, int64_t first_label, int64_t line) {
    DatasetStats& stats = encoded_.stats;
    const int64_t whole = std::ssize(ids) - 1;
    const int64_t length = std::min(whole, options_.seq_len);
    ids.resize(length + 1);
    if (length <= first_label) {
      ++stats.dropped;
      stats.lost_tokens += whole;
      return;
    }
    encoded_.records.push_back({.begin = std::ssize(encoded_.ids),
                                .length = static_cast<int32_t>(length),
                                .first_label = static_cast<int32_t>(first_label),
                                .line = line});
    append(encoded_.ids, ids);
    ++stats.samples;
    stats.truncated += length < whole ? 1 : 0;
    stats.lost_tokens += whole - length;
    stats.tokens += length;
    stats.num_label_tokens += length - first_label;
  }

  const DatasetOptions& options_;
  std::string path_;
  bool has_records_ = false;
  SampleFields fields_;
  std::string separator_;
  std::optional<SpecialTokens> special_tokens_;
  EncodedRecords encoded_;
};

}  // namespace

EncodedRecords read_records(const DatasetOptions& options) {
  return RecordReader(options).run();
}

}  // namespace zeroth::data
