// Meaning of a record's fields.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace zeroth::data {

struct SampleFields {
  std::string text = {};  // empty if the next two are set
  std::string prompt = {};
  std::string completion = {};
  bool guessed = false;  // chosen by common names of prompt and completion
};

// Chooses the fields by the names in the first record: `text`, or a pair of `prompt` and
// `completion`, `question` and `answer`, `instruction` and `output`, and similar ones. Throws an
// Error for records of another kind (chats, preferences, prompts of several fields) that names the
// kind, the fields found and what is supported.
SampleFields choose_fields(const nlohmann::json& first_record);

// Returns the default separator of prompt and completion: nothing for `prompt` and `completion`,
// which are TRL's and concatenated there, and a newline for any other pair, whose fields are
// separate texts.
std::string default_separator(const SampleFields& fields);

}  // namespace zeroth::data
