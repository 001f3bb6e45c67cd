#include "data/record_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/regular_file.h"
#include "data/json_records.h"
#include "data/sample_fields.h"
#include "data/tokenizer.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

constexpr std::string_view kBlank = " \t\r\n";

void append(std::vector<int32_t>& ids, const std::vector<int32_t>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

std::string kind_of(const json& value) {
  const std::string name = value.type_name();
  if (value.is_null()) return name;
  return (value.is_object() || value.is_array() ? "an " : "a ") + name;
}

void require_object(const json& value) {
  if (!value.is_object()) throw Error("a JSON {}, not an object", value.type_name());
}

const std::string& text_of(const json& object, const std::string& field) {
  const auto found = object.find(field);
  if (found == object.end()) throw Error("no field '{}'", field);
  if (!found->is_string()) {
    throw Error("field '{}' is {}, not a string", field, kind_of(*found));
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

class RecordReader {
 public:
  explicit RecordReader(const DatasetOptions& options)
      : options_(options), path_(options.path.string()) {
    if (options.tokenizer == nullptr) throw Error("{}: text needs a tokenizer.json", path_);
    const auto end_of_text = options.tokenizer->end_of_text();
    if (!end_of_text) {
      throw Error("{}: no end-of-text token is known: give eos_token in tokenizer_config.json",
                  path_);
    }
    read_.end_of_text = *end_of_text;
    if (options.prompt_field.empty() != options.completion_field.empty()) {
      throw Error("--prompt-field '{}' and --completion-field '{}' go together",
                  options.prompt_field, options.completion_field);
    }
  }

  EncodedRecords run() {
    const MappedFile file(options_.path);
    const auto on_record = [&](std::string_view record, int64_t line) { take(record, line); };
    if (options_.path.extension() == ".json") {
      for_each_element(file.text(), path_, on_record);
    } else {
      for_each_line(file.text(), on_record);
    }
    if (!begun_) throw Error("{} has no records", path_);
    if (!read_.joined && read_.records.empty()) {
      throw Error("{}: no sample is left ({} dropped: nothing to train within seq_len {})", path_,
                  read_.stats.dropped, options_.seq_len);
    }
    return std::move(read_);
  }

 private:
  json parse(std::string_view text, int64_t line) const {
    if (text.find_first_not_of(kBlank) == std::string_view::npos) {
      throw Error("{}:{}: the line is empty", path_, line);
    }
    JsonSource source{.name = path_, .line = line, .repeated = Repeated::kRefused};
    source.limits.bytes = text.size();  // a text may be as long as it likes
    return parse_json(text, source);
  }

  void take(std::string_view record, int64_t line) {
    const json object = parse(record, line);
    try {
      require_object(object);
      if (!begun_) choose(object);
      begun_ = true;
      add(object, line);
    } catch (const Error& e) {
      throw Error("{}:{}: {}", path_, line, e.what());
    }
  }

  void choose(const json& first_record) {
    read_.stats.pairs = true;
    if (!options_.prompt_field.empty()) {
      fields_ = {.prompt = options_.prompt_field, .completion = options_.completion_field};
      return;
    }
    fields_ = choose_fields(first_record);
    if (!fields_.text.empty() && !options_.separator.empty()) {
      throw Error("--separator stands between prompt and completion, but the samples are 'text'");
    }
    read_.stats.pairs = fields_.text.empty();
    read_.joined = !read_.stats.pairs && options_.long_text == LongText::kChunk;
    if (fields_.guessed) {
      read_.stats.guess =
          fmt::format("'{}' is the prompt, '{}' is trained", fields_.prompt, fields_.completion);
    }
  }

  void add(const json& object, int64_t line) {
    const Tokenizer& tokenizer = *options_.tokenizer;
    std::vector<int32_t> ids = tokenizer.prefix();
    int64_t first_trained = 0;
    if (!fields_.text.empty()) {
      append(ids, tokenizer.encode(text_of(object, fields_.text)));
    } else {
      append(ids, tokenizer.encode(text_of(object, fields_.prompt) + options_.separator));
      first_trained = std::max<int64_t>(std::ssize(ids) - 1, 0);  // targets are one ahead
      append(ids, tokenizer.encode(text_of(object, fields_.completion)));
    }
    const auto& suffix = tokenizer.suffix();
    if (suffix.empty() || suffix.back() != read_.end_of_text) ids.push_back(read_.end_of_text);
    append(ids, suffix);
    check_ids(ids, options_.vocab_size);
    if (read_.joined) {
      append(read_.ids, ids);
    } else {
      keep(std::move(ids), first_trained, line);
    }
  }

  void keep(std::vector<int32_t> ids, int64_t first_trained, int64_t line) {
    DatasetStats& stats = read_.stats;
    const int64_t whole = std::ssize(ids) - 1;
    const int64_t length = std::min(whole, options_.seq_len);
    ids.resize(length + 1);
    if (length <= first_trained) {
      ++stats.dropped;
      stats.lost_tokens += whole;
      return;
    }
    read_.records.push_back({.begin = std::ssize(read_.ids),
                             .length = static_cast<int32_t>(length),
                             .first_trained = static_cast<int32_t>(first_trained),
                             .line = line});
    append(read_.ids, ids);
    ++stats.samples;
    stats.truncated += length < whole ? 1 : 0;
    stats.lost_tokens += whole - length;
    stats.tokens += length;
    stats.trained_tokens += length - first_trained;
  }

  const DatasetOptions& options_;
  std::string path_;
  bool begun_ = false;
  SampleFields fields_;
  EncodedRecords read_;
};

}  // namespace

EncodedRecords read_records(const DatasetOptions& options) {
  return RecordReader(options).run();
}

}  // namespace zeroth::data
