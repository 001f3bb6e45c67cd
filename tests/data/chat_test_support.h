// A tokenizer and a template for tests of what is trained of conversations.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/samples/chat_encoder.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data {

inline constexpr const char* kMarks[] = {"<|im_start|>", "<|im_end|>", "<|tool|>", "<s>", "</s>"};

// GPT-2's tokenizer of the fixtures with special tokens for chats; </s> ends a text.
class ChatTokenizer {
 public:
  explicit ChatTokenizer(bool with_marks = true)
      : ChatTokenizer(with_marks ? std::vector<std::string>(std::begin(kMarks), std::end(kMarks))
                                 : std::vector<std::string>{"</s>"},
                      {{"bos_token", "<s>"}, {"eos_token", "</s>"}}) {}

  ChatTokenizer(const std::vector<std::string>& marks, const nlohmann::ordered_json& config) {
    nlohmann::json file = read_fixture("gpt2/tokenizer.json");
    int id = 500;
    for (const std::string& mark : marks) {
      if (mark == "<|endoftext|>") continue;  // it has one
      file["added_tokens"].push_back({{"id", id++}, {"content", mark}, {"special", true}});
    }
    directory_.write("tokenizer.json", file.dump());
    directory_.write("tokenizer_config.json", config.dump());
    tokenizer_.emplace(Tokenizer::load(directory_.path()));
  }

  const Tokenizer& operator*() const { return *tokenizer_; }

 private:
  TempFolder directory_;
  std::optional<Tokenizer> tokenizer_;
};

// As Qwen's: a header, the words, a token that ends the turn, and a newline.
inline constexpr const char* kChatMl =
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

inline ChatRecord chat(std::initializer_list<std::pair<const char*, const char*>> messages) {
  ChatRecord record{.messages = nlohmann::ordered_json::array(), .tools = nullptr, .losses = {}};
  for (const auto& [role, content] : messages) {
    record.messages.push_back({{"role", role}, {"content", content}});
    record.losses.push_back(MessageLoss::kDefault);
  }
  return record;
}

inline ModelTemplates templates(const std::string& source) {
  ModelTemplates result;
  result.chat = ChatTemplate::parse(source, "test.jinja");
  result.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  return result;
}

// The trained tokens as text, those that are not adjacent separated by '|'.
inline std::string trained(const Tokenizer& tokenizer, const TokenRecord& sample) {
  std::string text;
  bool previous = false;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    if (sample.trained[i] && !previous && !text.empty()) text += '|';
    if (sample.trained[i]) text += tokenizer.decode(std::span(&sample.ids[i], 1));
    previous = sample.trained[i];
  }
  return text;
}

inline std::string trained(const std::string& source, const ChatRecord& record,
                           TrainOn train_on = TrainOn::kAssistant) {
  const ChatTokenizer tokenizer;
  ChatEncoder encoder(
      *tokenizer, templates(source),
      {.template_kwargs = nlohmann::ordered_json::object(), .train_on = train_on, .now = {}});
  return trained(*tokenizer, encoder.encode(record));
}

inline const auto kTwoTurns = [] {
  return chat({{"system", "Be kind."},
               {"user", "Hi"},
               {"assistant", "Hello!"},
               {"user", "More"},
               {"assistant", "Yes."}});
};

}  // namespace zeroth::data
