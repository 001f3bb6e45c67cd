// Chats of records: messages, tools and arguments in the one form that chat templates of Hugging
// Face expect, whichever tool the record was written for. All functions throw an Error with the
// reason for a record that is not such a chat; the caller adds file and line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/records/record.h"

namespace zeroth::data {

// MessageTags are the names of the members of a message and the values of its role: as in chat
// templates, in ShareGPT, or those of an entry of LLaMA-Factory's dataset_info.json.
struct MessageTags {
  struct Role {
    std::string tag;  // in the record
    std::string
        name;  // in the template; kCallRole: the content is a call of the assistant, as JSON
  };
  std::string role = "role";
  std::string content = "content";
  std::vector<Role> roles = {};
};
inline constexpr const char* kCallRole = "function_call";

// Returns the tags of chat templates ("role", "content"; "system", "user", "assistant", ...).
MessageTags template_tags();

// Returns the tags of ShareGPT ("from", "value"; "human", "gpt", "function_call", ...).
MessageTags sharegpt_tags();

void add_message(ChatRecord& chat, const char* role, const std::string& content,
                 MessageLoss loss = MessageLoss::kDefault);

// Adds the messages of a record's `field`. The switches "weight", "training", "train" and "loss" of
// a message, true or 1 and false or 0, become its MessageLoss; one that is false or 0 wins. In a
// message of another role than the assistant's, "weight" and "loss" turn nothing on.
// Arguments and calls that are JSON strings become objects. Images, audio and video are refused.
void add_messages(ChatRecord& chat, const nlohmann::ordered_json& record, const std::string& field,
                  const MessageTags& tags);

// Adds the turns of a record's `field`, an array of pairs: each is an array of a question and an
// answer, or an object with "human" or "user" and "assistant". `loss` is that of the answers.
void add_pairs(ChatRecord& chat, const nlohmann::ordered_json& record, const std::string& field,
               MessageLoss loss);

// Adds the other fields of the record: the system message, which becomes the first one, the tools,
// and "chat_template_kwargs". Fields may be absent, and a name empty. Throws an Error if no message
// from `first_answer` on is the assistant's.
void finish_chat(ChatRecord& chat, const nlohmann::ordered_json& record,
                 const std::string& system_field, const std::string& tools_field,
                 size_t first_answer = 0);

// Joins the text parts of each content that is an array, for a template that can place only
// strings. Returns the number of these messages.
size_t join_text_parts(ChatRecord& chat);

}  // namespace zeroth::data
