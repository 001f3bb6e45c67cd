// A record of a data file, in one of the three forms from which samples are made. Formats of files
// (record_format.h) read their records as these.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace zeroth::data {

// TextRecord is parts of one text that follow each other: a document, a prompt and its completion,
// or segments.
struct TextPart {
  std::string text;
  bool trained = true;
};
struct TextRecord {
  std::vector<TextPart> parts;
  bool is_complete = false;  // with all special tokens that it shall have
};

// MessageLoss is what a record says about training on one of its messages.
enum class MessageLoss {
  kDefault,  // nothing: --train-on decides
  kTrained,  // also of a message that --train-on leaves out
  kMasked,   // also of an assistant's message, whatever --train-on says
  kPrompt,   // it is part of a prompt: --train-on all alone trains it
};

// ChatRecord is what a chat template renders. Messages, tools and arguments have the members that
// the record has, in its order, and no others.
struct ChatRecord {
  nlohmann::ordered_json messages;  // an array of objects, each with "role", not empty
  nlohmann::ordered_json tools;     // an array, or null if there are none
  nlohmann::ordered_json template_kwargs = nlohmann::ordered_json::object();
  std::vector<MessageLoss> losses;  // of each message
};

// TokenRecord is token ids, and whether each is trained.
struct TokenRecord {
  std::vector<int32_t> ids;
  std::vector<bool> trained;
};

using Record = std::variant<TextRecord, ChatRecord, TokenRecord>;

}  // namespace zeroth::data
