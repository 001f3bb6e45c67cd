#include "data/records/record_format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/printable.h"

namespace zeroth::data {
namespace {

using nlohmann::ordered_json;

constexpr const char* kMessages[] = {"messages", "conversations", "conversation", "dialogue"};
constexpr const char* kPrompts[] = {"prompt", "question", "instruction", "input", "query"};
constexpr const char* kCompletions[] = {"completion", "answer", "output", "response"};
constexpr const char* kDocuments[] = {"content", "document"};
// Pairs in records that have none of the names above on one side.
constexpr std::pair<const char*, const char*> kOtherPairs[] = {
    {"problem", "solution"}, {"problem", "answer"}, {"INSTRUCTION", "RESPONSE"}};
// Further fields that hold a text in some format.
constexpr const char* kOtherTexts[] = {"text",    "problem", "solution",      "history",
                                       "context", "system",  "system_prompt", "tools"};
constexpr const char* kNameFields =
    "name the fields with --prompt-field and --completion-field, or one with --text-field or "
    "--messages-field";

std::vector<std::string> present_names(const ordered_json& record,
                                       std::span<const char* const> names) {
  std::vector<std::string> present;
  for (const char* name : names) {
    if (record.contains(name)) present.emplace_back(name);
  }
  return present;
}

bool has_any(const ordered_json& record, std::span<const char* const> names) {
  return !present_names(record, names).empty();
}

std::string quoted_names(const std::vector<std::string>& names) {
  return fmt::format("'{}'", fmt::join(names, "', '"));
}

std::string list_fields(const ordered_json& record) {
  constexpr size_t kMaxShown = 12;
  std::vector<std::string> names;
  for (const auto& [name, value] : record.items()) {
    if (names.size() == kMaxShown) return quoted_names(names) + ", ...";
    names.push_back(shortened(name, 40));
  }
  return names.empty() ? "none" : quoted_names(names);
}

void require_object(const ordered_json& record) {
  if (record.is_object()) return;
  throw Error("a JSON {}, not an object{}", record.type_name(),
              record.is_array() ? "; name a file with one array of objects .json" : "");
}

bool is_array(const ordered_json& record, const std::string& field) {
  const auto member = record.find(field);
  return member != record.end() && member->is_array();
}

bool is_usual_pair(const ordered_json& record) {
  return record.contains("prompt") && record.contains("completion");
}

// FormatRow is a format of the table. `matches` returns whether a first record has it, and sets the
// names of the fields that are read, unless they are set. A format that the user `selected` by name
// needs fewer marks.
struct FormatRow {
  std::string_view name;
  // The field of this format that the user can name, or null.
  std::string RecordFields::*named = nullptr;
  bool (*matches)(const ordered_json& record, const FormatRow& row, bool selected,
                  RecordFields& fields);
  Record (*read)(const ordered_json& record, const RecordFields& fields) = nullptr;
  const char* description = "";
};

// Clears the names of the fields that only chats have.
void set_texts_only(RecordFields& fields) {
  fields.input = fields.history = fields.system = fields.tools = "";
}

bool match_tokens(const ordered_json& record, const FormatRow&, bool selected,
                  RecordFields& fields) {
  if (!selected && !is_array(record, "input_ids")) return false;
  fields = {.text = "input_ids"};
  set_texts_only(fields);
  return true;
}

bool match_preferences(const ordered_json& record, const FormatRow&, bool selected, RecordFields&) {
  constexpr const char* kAnswers[] = {"chosen", "rejected", "rejected_response"};
  if (!selected && !has_any(record, kAnswers)) return false;
  throw Error(
      "the records are preferences (fields {}): training on preferences (DPO) is not supported; "
      "--prompt-field with --completion-field, or --messages-field, trains on one of the answers",
      list_fields(record));
}

bool match_ratings(const ordered_json& record, const FormatRow&, bool selected, RecordFields&) {
  const auto is_rating = [&](const char* name) {
    return record.contains(name) && record[name].is_boolean();
  };
  const bool has_answer = record.contains("completion") || has_any(record, kMessages);
  if (!selected && !(has_answer && (is_rating("label") || is_rating("kto_tag")))) return false;
  throw Error(
      "the records are rated answers (fields {}): training on ratings (KTO) is not supported; "
      "--prompt-field with --completion-field, or --messages-field, trains on bad answers too",
      list_fields(record));
}

// Returns the format of the messages by the first one that shows it.
std::string_view format_of_messages(const ordered_json& messages) {
  for (const ordered_json& message : messages) {
    if (!message.is_object()) continue;
    if (message.contains("role")) return "messages";
    if (message.contains("from")) return "sharegpt";
    if (message.contains("assistant")) return "human-assistant";
  }
  return "messages";
}

bool match_messages(const ordered_json& record, const FormatRow& row, bool selected,
                    RecordFields& fields) {
  for (const char* name : kMessages) {
    if (fields.messages.empty() && is_array(record, name)) fields.messages = name;
  }
  if (fields.messages.empty()) return false;
  if (!selected && row.name != format_of_messages(record[fields.messages])) return false;
  if (!fields.tags) fields.tags = row.name == "sharegpt" ? sharegpt_tags() : template_tags();
  fields.input = fields.history = "";
  return true;
}

bool match_segments(const ordered_json& record, const FormatRow&, bool selected,
                    RecordFields& fields) {
  if (!selected) {
    if (!is_array(record, "segments") || record["segments"].empty()) return false;
    if (!record["segments"][0].is_object() || !record["segments"][0].contains("label"))
      return false;
  }
  fields = {.text = "segments"};
  set_texts_only(fields);
  return true;
}

bool match_text(const ordered_json& record, const FormatRow&, bool selected, RecordFields& fields) {
  if (fields.text.empty()) {
    const auto documents = present_names(record, kDocuments);
    const bool has_text = record.contains("text");
    if (!has_text && (!selected || documents.size() != 1)) return false;
    if (has_text && !selected && is_usual_pair(record)) {
      throw Error(
          "both 'text' and 'prompt' with 'completion': name the pair with --prompt-field and "
          "--completion-field, or choose --data-format text to train on 'text'");
    }
    fields.text = has_text ? "text" : documents.front();
  }
  set_texts_only(fields);
  return true;
}

bool match_message_pair(const ordered_json& record, const FormatRow&, bool, RecordFields& fields) {
  if (fields.prompt.empty()) {
    if (!is_usual_pair(record)) return false;
    fields.prompt = "prompt";
    fields.completion = "completion";
  }
  fields.input = fields.history = "";
  return is_array(record, fields.prompt) || is_array(record, fields.completion);
}

bool match_alpaca(const ordered_json& record, const FormatRow&, bool selected,
                  RecordFields& fields) {
  if (!fields.prompt.empty()) return selected;
  constexpr const char* kOutputs[] = {"output", "response"};
  const auto outputs = present_names(record, kOutputs);
  if (!record.contains("instruction") || outputs.size() != 1) return false;
  fields.prompt = "instruction";
  fields.completion = outputs.front();
  return selected || record.contains(fields.input) || record.contains(fields.history) ||
         record.contains(fields.system);
}

// Sets the names of a pair, if the record has one.
bool choose_pair(const ordered_json& record, RecordFields& fields) {
  const auto prompts = present_names(record, kPrompts);
  const auto completions = present_names(record, kCompletions);
  if (is_usual_pair(record)) {
    fields.prompt = "prompt";
    fields.completion = "completion";
  } else if (prompts.size() == 1 && completions.size() == 1) {
    fields.prompt = prompts.front();
    fields.completion = completions.front();
  } else if (!prompts.empty() && !completions.empty()) {
    throw Error(
        "the records are ambiguous (fields {}): several could be prompt or completion; "
        "--prompt-field {} --completion-field {} trains on these two only",
        list_fields(record), prompts.front(), completions.front());
  }
  for (const auto& [prompt, completion] : kOtherPairs) {
    if (!fields.prompt.empty() || !record.contains(prompt) || !record.contains(completion))
      continue;
    fields.prompt = prompt;
    fields.completion = completion;
  }
  return !fields.prompt.empty();
}

bool match_query_response(const ordered_json& record, const FormatRow&, bool selected,
                          RecordFields& fields) {
  const bool has_turns = record.contains(fields.history) || record.contains(fields.system);
  const bool is_pair = !fields.prompt.empty() || is_usual_pair(record);
  if (!selected && (!has_turns || is_pair)) return false;
  fields.input = "";
  return !fields.prompt.empty() || choose_pair(record, fields);
}

bool match_text_pair(const ordered_json& record, const FormatRow&, bool, RecordFields& fields) {
  const bool is_named = !fields.prompt.empty();
  if (!is_named && !choose_pair(record, fields)) return false;
  const bool is_usual = fields.prompt == "prompt" && fields.completion == "completion";
  // read_text_pair() refuses later records with the fields of a chat.
  if (is_named || is_usual) set_texts_only(fields);
  if (fields.prompt != "instruction") fields.input = "";
  fields.tools = "";
  if (!fields.separator) fields.separator = is_usual ? "" : "\n";
  return true;
}

// The formats in the order in which a first record is matched.
constexpr FormatRow kFormats[] = {
    {"tokenized", nullptr, match_tokens, read_tokens,
     "tokenized: '{text}', of which 'labels' and masks are trained"},
    {"preference", nullptr, match_preferences},
    {"kto", nullptr, match_ratings},
    {"messages", &RecordFields::messages, match_messages, read_messages,
     "messages ({role}, {content}) in '{messages}'"},
    {"sharegpt", &RecordFields::messages, match_messages, read_messages,
     "sharegpt ({role}, {content}) in '{messages}'"},
    {"human-assistant", &RecordFields::messages, match_messages, read_question_pairs,
     "human-assistant: pairs in '{messages}'"},
    {"segments", nullptr, match_segments, read_segments,
     "segments: the text of '{text}', of which those with a true label are trained"},
    {"text", &RecordFields::text, match_text, read_text, "text: '{text}' is trained"},
    {"prompt-completion", &RecordFields::prompt, match_message_pair, read_message_pair,
     "prompt-completion: messages of '{prompt}' and '{completion}', which is trained"},
    {"alpaca", &RecordFields::prompt, match_alpaca, read_turns,
     "alpaca: '{prompt}'{and_input} the user's turn, '{completion}' is trained"},
    {"query-response", &RecordFields::prompt, match_query_response, read_turns,
     "query-response: '{prompt}' is the user's turn, '{completion}' is trained"},
    {"prompt-completion", &RecordFields::prompt, match_text_pair, read_text_pair,
     "prompt-completion: '{prompt}' is the prompt, '{completion}' is trained"}};

// Returns the field that the user named, or null. Throws an Error if several formats have the
// names, or the record lacks one.
std::string RecordFields::*named_field(const ordered_json& record, const RecordFields& fields) {
  if (fields.prompt.empty() != fields.completion.empty()) {
    throw Error("--prompt-field '{}' and --completion-field '{}' must be given together",
                fields.prompt, fields.completion);
  }
  std::string RecordFields::*named = nullptr;
  for (const auto field : {&RecordFields::text, &RecordFields::prompt, &RecordFields::messages}) {
    if ((fields.*field).empty()) continue;
    if (named != nullptr) {
      throw Error("'{}' and '{}' are fields of two formats: name a text, a pair or messages",
                  fields.*named, fields.*field);
    }
    named = field;
  }
  for (const std::string& name : {fields.text, fields.prompt, fields.completion, fields.messages}) {
    if (name.empty() || record.contains(name)) continue;
    throw Error("no field '{}' (fields {})", name, list_fields(record));
  }
  return named;
}

std::string describe(const FormatRow& row, const ordered_json& record, const RecordFields& fields) {
  const MessageTags tags = fields.tags.value_or(MessageTags());
  const std::string and_input =
      fields.input.empty() ? " is" : fmt::format(" and '{}' are", fields.input);
  std::string text =
      fmt::format(fmt::runtime(row.description), fmt::arg("text", fields.text),
                  fmt::arg("prompt", fields.prompt), fmt::arg("completion", fields.completion),
                  fmt::arg("messages", fields.messages), fmt::arg("role", tags.role),
                  fmt::arg("content", tags.content), fmt::arg("and_input", and_input));
  const std::string* read[] = {&fields.text,  &fields.prompt,  &fields.completion, &fields.messages,
                               &fields.input, &fields.history, &fields.system,     &fields.tools};
  std::vector<std::string> unread;
  for (const std::span<const char* const> names :
       {std::span<const char* const>(kMessages), {kPrompts}, {kCompletions}, {kOtherTexts}}) {
    for (const char* name : names) {
      const bool is_read = std::any_of(std::begin(read), std::end(read),
                                       [&](const std::string* field) { return *field == name; });
      if (!is_read && !is_blank(record, name)) unread.emplace_back(name);
    }
  }
  return unread.empty() ? text : fmt::format("{}; not read: {}", text, quoted_names(unread));
}

[[noreturn]] void throw_unrecognized(const ordered_json& record, const std::string& name) {
  for (const char* field : {"messages", "conversations"}) {
    if (record.contains(field)) array_field(record, field, "messages");
  }
  if (!name.empty()) {
    throw Error("the records are not in the format '{}' (fields {}): {}", name, list_fields(record),
                kNameFields);
  }
  const auto documents = present_names(record, kDocuments);
  const std::string remedy =
      documents.empty() ? "" : fmt::format("; --text-field {} trains on this one", documents[0]);
  throw Error("neither 'text' nor 'prompt' and 'completion' nor 'messages' (fields {}): {}{}",
              list_fields(record), kNameFields, remedy);
}

}  // namespace

RecordFormat RecordFormat::recognize(const ordered_json& first_record, const std::string& name,
                                     const RecordFields& wanted) {
  require_object(first_record);
  const auto named = named_field(first_record, wanted);
  const bool selected = !name.empty();
  bool is_known = false;
  for (const FormatRow& row : kFormats) {
    if (selected && row.name != name) continue;
    is_known = true;
    if (named != nullptr && row.named != named) continue;
    RecordFormat format;
    format.fields_ = wanted;
    if (wanted.system == "system" && !first_record.contains("system") &&
        first_record.contains("system_prompt")) {
      format.fields_.system = "system_prompt";
    }
    if (!row.matches(first_record, row, selected, format.fields_)) continue;
    if (!wanted.separator.value_or("").empty() && row.read != read_text_pair) {
      throw Error("--separator goes between prompt and completion, but the samples are '{}'",
                  row.name);
    }
    format.name_ = row.name;
    format.description_ = describe(row, first_record, format.fields_);
    format.reader_ = row.read;
    format.read(first_record);
    return format;
  }
  if (!is_known) {
    throw Error("unknown data format '{}': it must be one of {}", shortened(name), format_names());
  }
  throw_unrecognized(first_record, name);
}

Record RecordFormat::read(const ordered_json& record) const {
  require_object(record);
  return reader_(record, fields_);
}

std::string format_names() {
  std::vector<std::string_view> names;
  for (const FormatRow& row : kFormats) {
    const bool is_listed = std::find(names.begin(), names.end(), row.name) != names.end();
    if (row.read != nullptr && !is_listed) names.push_back(row.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace zeroth::data
