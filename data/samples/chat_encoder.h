// ChatEncoder: conversations as token ids, and which of them the model has to write.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/chat_template/chat_template.h"
#include "data/records/record.h"
#include "data/samples/dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace zeroth::data {

// ModelTemplates are the chat templates of a model's folder, as transformers finds them.
struct ModelTemplates {
  std::optional<ChatTemplate> chat;   // nullopt if the model has none
  std::optional<ChatTemplate> tools;  // of chats with tools; nullopt: the same
  uint64_t digest = 0;                // of their texts
  // The special tokens by their names: "bos_token", "eos_token" and others that the tokenizer has.
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();
};

// Reads chat_template.jinja with additional_chat_templates/tool_use.jinja, otherwise the
// `chat_template` of tokenizer_config.json: one, or a list of named ones. Throws an Error that
// names the file, for a template that is not valid also line and column.
ModelTemplates read_model_templates(const std::filesystem::path& model_dir);

// Takes the template of a file in place of the model's.
void use_template_file(const std::filesystem::path& path, ModelTemplates& templates);

// A Turn is what the model writes for one message: content, reasoning and calls, with the words of
// the template between them, up to and with the token that ends the turn. A message of another role
// is one if its record says whether it is trained.
struct Turn {
  size_t message = 0;
  TextRange range;       // bytes of the rendered text
  bool has_end = false;  // the template writes such a token
};

// SpecialToken is one in the rendered text.
struct SpecialToken {
  TextRange range;
  bool ends_generation = false;
};

// MessageRange is where a message is in the rendered text.
struct MessageRange {
  std::optional<TextRange> all;      // with the template's words around its fields
  std::optional<TextRange> written;  // from the first byte that its author wrote to the last one
};

class ChatEncoder {
 public:
  struct Options {
    // Of all chats (--chat-template-kwargs); those of a record win.
    nlohmann::ordered_json template_kwargs = nlohmann::ordered_json::object();
    TrainOn train_on = TrainOn::kAssistant;
    std::optional<std::tm> now = {};  // of strftime_now
  };

  // Keeps a reference to the tokenizer. The model has to have a template.
  ChatEncoder(const Tokenizer& tokenizer, ModelTemplates templates, Options options);

  // Renders and encodes a conversation, without other special tokens than the template's. A token
  // is trained if any of its bytes belongs to a turn that is. Throws an Error with the template's
  // reason.
  TokenRecord encode(const ChatRecord& record);

  // Returns whether the template places a content that is a list of text parts.
  bool places_text_parts();

  // What was encoded so far.
  struct Counts {
    int64_t turns = 0;                // of assistants, trained
    int64_t turns_without_end = 0;    // of them
    int64_t with_special_tokens = 0;  // messages whose words hold special tokens
    // Fields whose words the template left out, with the number of messages: "content of role
    // system"; "tools", with the number of records.
    std::map<std::string, int64_t> missing_fields = {};

    void add(const Counts& other);
  };
  const Counts& counts() const { return counts_; }

 private:
  RenderedChat render(const ChatRecord& record, bool add_generation_prompt) const;
  const std::string& header(const ChatRecord& record);
  std::vector<Turn> find_turns(const ChatRecord& record, const RenderedChat& chat,
                               std::span<const MessageRange> ranges,
                               std::span<const SpecialToken> special);
  bool trains(const ChatRecord& record, size_t message) const;
  void count_missing(const ChatRecord& record, const RenderedChat& chat,
                     std::span<const MessageRange> ranges);
  void count_special_tokens(const RenderedChat& chat, std::span<const SpecialToken> special);

  const Tokenizer& tokenizer_;
  ModelTemplates templates_;
  Options options_;
  std::map<std::string, std::string> headers_;  // by what they depend on of a record
  std::optional<bool> places_text_parts_;
  Counts counts_;
};

}  // namespace zeroth::data
