#include "data/records/record_fields.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "base/json/json.h"

namespace zeroth::data {
namespace {

using nlohmann::ordered_json;

// Returns "" for a field that is absent or null, or has no name.
std::string optional_string(const ordered_json& record, const std::string& field) {
  return find_member(record, field) == nullptr ? "" : string_field(record, field);
}

// Returns an array of as many elements as there are tokens, or null if the record has none.
const ordered_json* find_of_tokens(const ordered_json& record, const char* name, size_t size) {
  if (find_member(record, name) == nullptr) return nullptr;
  const ordered_json& values = array_field(record, name, "tokens");
  if (values.size() == size) return &values;
  throw Error("'{}' has {} elements, but there are {} tokens", name, values.size(), size);
}

// Returns whether each token is not masked. A record without the mask masks none.
std::vector<bool> read_mask(const ordered_json& record, const char* name, size_t size) {
  std::vector<bool> flags(size, true);
  const ordered_json* mask = find_of_tokens(record, name, size);
  for (size_t i = 0; mask != nullptr && i < size; ++i) {
    const ordered_json& value = (*mask)[i];
    flags[i] = value == 1 || value == true;
    if (!flags[i] && value != 0 && value != false) {
      throw Error("{}[{}] is {}, not 0 or 1", name, i, quoted(value));
    }
  }
  return flags;
}

std::vector<bool> read_labels(const ordered_json& record, const ordered_json& ids) {
  constexpr int kIgnoreIndex = -100;
  std::vector<bool> flags(ids.size(), true);
  const ordered_json* labels = find_of_tokens(record, "labels", ids.size());
  for (size_t i = 0; labels != nullptr && i < ids.size(); ++i) {
    const ordered_json& label = (*labels)[i];
    flags[i] = label != kIgnoreIndex;
    if (flags[i] && label != ids[i]) {
      throw Error(
          "labels[{}] is {}, but this token is {}: a label is the token itself, not the next "
          "one, or -100",
          i, quoted(label), quoted(ids[i]));
    }
  }
  return flags;
}

}  // namespace

Record read_text(const ordered_json& record, const RecordFields& fields) {
  return TextRecord{{{.text = string_field(record, fields.text)}}};
}

Record read_text_pair(const ordered_json& record, const RecordFields& fields) {
  for (const std::string& name : {fields.input, fields.history, fields.system}) {
    if (is_blank(record, name)) continue;
    throw Error(
        "field '{}' would be ignored, as the first record has none: choose --data-format "
        "alpaca or query-response, or ignore it with --prompt-field {} --completion-field {}",
        name, fields.prompt, fields.completion);
  }
  const std::string prompt = string_field(record, fields.prompt) + fields.separator.value_or("");
  return TextRecord{
      {{.text = prompt, .trained = false}, {.text = string_field(record, fields.completion)}}};
}

Record read_message_pair(const ordered_json& record, const RecordFields& fields) {
  const MessageTags tags = template_tags();
  ChatRecord chat;
  add_messages(chat, record, fields.prompt, tags);
  std::replace_if(
      chat.losses.begin(), chat.losses.end(),
      [](MessageLoss loss) { return loss != MessageLoss::kMasked; }, MessageLoss::kPrompt);
  const size_t num_prompts = chat.losses.size();
  add_messages(chat, record, fields.completion, tags);
  finish_chat(chat, record, fields.system, fields.tools, num_prompts);
  return chat;
}

Record read_turns(const ordered_json& record, const RecordFields& fields) {
  ChatRecord chat;
  if (!is_blank(record, fields.history)) {
    add_pairs(chat, record, fields.history, MessageLoss::kPrompt);
  }
  std::string question = string_field(record, fields.prompt);
  const std::string input = optional_string(record, fields.input);
  if (!question.empty() && !input.empty()) question += '\n';
  add_message(chat, "user", question + input);
  add_message(chat, "assistant", string_field(record, fields.completion));
  finish_chat(chat, record, fields.system, fields.tools);
  return chat;
}

Record read_messages(const ordered_json& record, const RecordFields& fields) {
  ChatRecord chat;
  add_messages(chat, record, fields.messages, *fields.tags);
  finish_chat(chat, record, fields.system, fields.tools);
  return chat;
}

Record read_question_pairs(const ordered_json& record, const RecordFields& fields) {
  ChatRecord chat;
  add_pairs(chat, record, fields.messages, MessageLoss::kDefault);
  finish_chat(chat, record, fields.system, fields.tools);
  return chat;
}

Record read_segments(const ordered_json& record, const RecordFields& fields) {
  TextRecord parts{.parts = {}, .is_complete = true};
  for (const ordered_json& segment : array_field(record, fields.text, "segments")) {
    const ordered_json* label = segment.is_object() ? find_member(segment, "label") : nullptr;
    if (label == nullptr || !label->is_boolean()) {
      throw Error("{}[{}] is not an object with 'text' and 'label', which is true or false",
                  fields.text, parts.parts.size());
    }
    parts.parts.push_back({string_field(segment, "text"), label->get<bool>()});
  }
  return parts;
}

Record read_tokens(const ordered_json& record, const RecordFields& fields) {
  const ordered_json& ids = array_field(record, fields.text, "tokens");
  const std::vector<bool> labeled = read_labels(record, ids);
  const std::vector<bool> in_completion = read_mask(record, "completion_mask", ids.size());
  const std::vector<bool> in_answer = read_mask(record, "assistant_masks", ids.size());
  const std::vector<bool> attended = read_mask(record, "attention_mask", ids.size());
  TokenRecord tokens;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!ids[i].is_number_unsigned() || ids[i] > std::numeric_limits<int32_t>::max()) {
      throw Error("{}[{}] is {}, not a token id", fields.text, i, quoted(ids[i]));
    }
    if (!attended[i]) continue;
    tokens.ids.push_back(ids[i].get<int32_t>());
    tokens.trained.push_back(labeled[i] && in_completion[i] && in_answer[i]);
  }
  return tokens;
}

const ordered_json* find_member(const ordered_json& object, const std::string& name) {
  const auto member = name.empty() ? object.end() : object.find(name);
  return member == object.end() || member->is_null() ? nullptr : &*member;
}

bool is_blank(const ordered_json& object, const std::string& name) {
  const ordered_json* value = find_member(object, name);
  return value == nullptr || *value == "" || (value->is_structured() && value->empty());
}

const std::string& string_field(const ordered_json& object, const std::string& name) {
  const auto member = object.find(name);
  if (member == object.end()) throw Error("no field '{}'", name);
  if (!member->is_string()) {
    throw Error("field '{}' is {}, not a string", name, json_type_name(*member));
  }
  return member->get_ref<const std::string&>();
}

const ordered_json& array_field(const ordered_json& object, const std::string& name,
                                const char* items) {
  const auto member = object.find(name);
  if (member == object.end()) throw Error("no field '{}'", name);
  if (!member->is_array()) {
    throw Error("field '{}' is {}, not an array of {}", name, json_type_name(*member), items);
  }
  if (member->empty()) throw Error("field '{}' has no {}", name, items);
  return *member;
}

std::string json_type_name(const ordered_json& value) {
  const std::string name = value.type_name();
  if (value.is_null()) return name;
  return (value.is_structured() ? "an " : "a ") + name;
}

}  // namespace zeroth::data
