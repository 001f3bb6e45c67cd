// The fields of a record, and the readers of records by their names. All functions throw an Error
// with the reason for a record of another shape; the caller adds file and line.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/records/messages.h"
#include "data/records/record.h"

namespace zeroth::data {

// RecordFields are the names of the fields that a format reads.
struct RecordFields {
  std::string text = {};
  std::string prompt = {};
  std::string completion = {};
  std::string messages = {};
  // Fields that a chat may have, too. Empty: the field is not read.
  std::string input = "input";      // goes on a new line after the prompt
  std::string history = "history";  // turns before the prompt, not trained
  std::string system = "system";
  std::string tools = "tools";
  // Text between prompt and completion. By default it is empty for fields of these names, and a
  // newline for others.
  std::optional<std::string> separator = {};
  std::optional<MessageTags> tags = {};  // of messages, if they are not the usual ones
};

// One text.
Record read_text(const nlohmann::ordered_json& record, const RecordFields& fields);

// A prompt and a completion, which are texts. Throws an Error for a record with a value in one of
// the fields for chats.
Record read_text_pair(const nlohmann::ordered_json& record, const RecordFields& fields);

// A prompt and a completion, which are arrays of messages; the prompt's are not trained.
Record read_message_pair(const nlohmann::ordered_json& record, const RecordFields& fields);

// A prompt with its input, and a completion, as turns of a chat.
Record read_turns(const nlohmann::ordered_json& record, const RecordFields& fields);

// An array of messages with `fields.tags`.
Record read_messages(const nlohmann::ordered_json& record, const RecordFields& fields);

// An array of objects, each with a question and an answer.
Record read_question_pairs(const nlohmann::ordered_json& record, const RecordFields& fields);

// An array of objects in the field `fields.text`, each with "text" and "label": true if it is
// trained.
Record read_segments(const nlohmann::ordered_json& record, const RecordFields& fields);

// Token ids in the field `fields.text`. "labels" are -100 for a token that is not trained, and the
// token itself otherwise; "completion_mask" and "assistant_masks" are 0 for such tokens. Tokens
// with 0 in "attention_mask" are padding and left out.
Record read_tokens(const nlohmann::ordered_json& record, const RecordFields& fields);

// Returns null for a member that is absent or null, and for the empty name.
const nlohmann::ordered_json* find_member(const nlohmann::ordered_json& object,
                                          const std::string& name);

// Returns whether the member is absent, null, or an empty string, array or object.
bool is_blank(const nlohmann::ordered_json& object, const std::string& name);

// Throws an Error if the field is absent or no string.
const std::string& string_field(const nlohmann::ordered_json& object, const std::string& name);

// Throws an Error if the field is absent, no array or empty. `items` names its elements.
const nlohmann::ordered_json& array_field(const nlohmann::ordered_json& object,
                                          const std::string& name, const char* items);

// Returns the type of a value for messages: "null", "a string", "an object".
std::string json_type_name(const nlohmann::ordered_json& value);

}  // namespace zeroth::data
