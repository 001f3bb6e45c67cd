#include "data/jsonl_samples.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/regular_file.h"
#include "data/json_records.h"
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

}  // namespace

JsonlSamples::JsonlSamples(const DatasetOptions& options)
    : path_(options.path.string()), seq_len_(options.seq_len) {
  if (options.tokenizer == nullptr) throw Error("{}: text needs a tokenizer.json", path_);
  const auto end_of_text = options.tokenizer->end_of_text();
  if (!end_of_text) {
    throw Error("{}: no end-of-text token is known: give eos_token in tokenizer_config.json",
                path_);
  }
  end_of_text_ = *end_of_text;
  if (options.prompt_field.empty() != options.completion_field.empty()) {
    throw Error("--prompt-field '{}' and --completion-field '{}' go together", options.prompt_field,
                options.completion_field);
  }
  const MappedFile file(options.path);
  const auto on_record = [&](std::string_view record, int64_t line) {
    read(options, record, line);
  };
  if (options.path.extension() == ".json") {
    for_each_element(file.text(), path_, on_record);
  } else {
    for_each_line(file.text(), on_record);
  }
  if (stats_.samples + stats_.dropped == 0) throw Error("{} has no records", path_);
  if (samples_.empty()) {
    throw Error("{}: no sample is left ({} dropped: nothing to train within seq_len {})", path_,
                stats_.dropped, seq_len_);
  }
}

json JsonlSamples::parse(std::string_view text, int64_t line) const {
  if (text.find_first_not_of(kBlank) == std::string_view::npos) {
    throw Error("{}:{}: the line is empty", path_, line);
  }
  JsonSource source{.name = path_, .line = line, .repeated = Repeated::kRefused};
  source.limits.bytes = text.size();  // a text may be as long as it likes
  return parse_json(text, source);
}

void JsonlSamples::read(const DatasetOptions& options, std::string_view record, int64_t line) {
  const json object = parse(record, line);
  try {
    require_object(object);
    if (!begun_) choose(options, object);
    begun_ = true;
    add(options, object, line);
  } catch (const Error& e) {
    throw Error("{}:{}: {}", path_, line, e.what());
  }
}

void JsonlSamples::choose(const DatasetOptions& options, const json& first_record) {
  if (!options.prompt_field.empty()) {
    fields_ = {.prompt = options.prompt_field, .completion = options.completion_field};
    return;
  }
  fields_ = choose_fields(first_record);
  if (!fields_.text.empty() && !options.separator.empty()) {
    throw Error("--separator stands between prompt and completion, but the samples are 'text'");
  }
  if (fields_.guessed) {
    stats_.guess =
        fmt::format("'{}' is the prompt, '{}' is trained", fields_.prompt, fields_.completion);
  }
}

void JsonlSamples::add(const DatasetOptions& options, const json& object, int64_t line) {
  const Tokenizer& tokenizer = *options.tokenizer;
  std::vector<int32_t> ids = tokenizer.prefix();
  int64_t first_trained = 0;
  if (!fields_.text.empty()) {
    append(ids, tokenizer.encode(text_of(object, fields_.text)));
  } else {
    append(ids, tokenizer.encode(text_of(object, fields_.prompt) + options.separator));
    first_trained = std::max<int64_t>(std::ssize(ids) - 1, 0);  // targets are one ahead
    append(ids, tokenizer.encode(text_of(object, fields_.completion)));
  }
  const auto& suffix = tokenizer.suffix();
  if (suffix.empty() || suffix.back() != end_of_text_) ids.push_back(end_of_text_);
  append(ids, suffix);
  check_ids(ids, options.vocab_size);
  keep(std::move(ids), first_trained, line);
}

void JsonlSamples::keep(std::vector<int32_t> ids, int64_t first_trained, int64_t line) {
  const bool cut = std::ssize(ids) > seq_len_ + 1;
  if (cut) ids.resize(seq_len_ + 1);
  const int64_t length = std::ssize(ids) - 1;
  if (length <= first_trained) {
    ++stats_.dropped;
    return;
  }
  samples_.push_back({.begin = std::ssize(ids_),
                      .length = static_cast<int32_t>(length),
                      .first_trained = static_cast<int32_t>(first_trained),
                      .line = line});
  append(ids_, ids);
  ++stats_.samples;
  stats_.truncated += cut ? 1 : 0;
  stats_.tokens += length;
  stats_.trained_tokens += length - first_trained;
}

const JsonlSamples::Sample& JsonlSamples::at(int64_t index) const {
  ZEROTH_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
  return samples_[index];
}

int64_t JsonlSamples::length(int64_t index) const {
  return at(index).length;
}

void JsonlSamples::fill(int64_t index, std::span<int64_t> tokens,
                        std::span<int64_t> targets) const {
  const Sample& sample = at(index);
  ZEROTH_CHECK(std::ssize(tokens) >= sample.length && tokens.size() == targets.size(),
               "{} tokens, {} targets, length {}", tokens.size(), targets.size(), sample.length);
  std::fill(tokens.begin() + sample.length, tokens.end(), end_of_text_);
  std::fill(targets.begin(), targets.end(), kUntrained);
  const int32_t* const ids = ids_.data() + sample.begin;
  std::copy_n(ids, sample.length, tokens.begin());
  std::copy(ids + 1 + sample.first_trained, ids + 1 + sample.length,
            targets.begin() + sample.first_trained);
}

std::string JsonlSamples::name_of(int64_t index) const {
  return fmt::format("{}:{}", path_, at(index).line);
}

}  // namespace zeroth::data
