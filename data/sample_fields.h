// What the fields of a record mean.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace zeroth::data {

struct SampleFields {
  std::string text = {};  // or empty:
  std::string prompt = {};
  std::string completion = {};
  bool guessed = false;  // from names that people use for prompt and completion
};

// By the names of the first record: `text`, or a pair of `prompt` and `completion`, `question` and
// `answer`, `instruction` and `output`, and the like. Throws an Error for records of another kind
// (chats, preferences, prompts of several fields) that names the kind, the fields found and what
// works today.
SampleFields choose_fields(const nlohmann::json& first_record);

// What separates prompt and completion where the user does not say it: nothing for `prompt` and
// `completion`, which are TRL's and joined there as they are, and a newline for any other pair,
// whose fields are texts of their own.
std::string default_separator(const SampleFields& fields);

}  // namespace zeroth::data
