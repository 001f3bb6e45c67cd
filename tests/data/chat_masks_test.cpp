// What is trained of conversations under real templates, and what records say about it.
#include <fstream>
#include <map>
#include <sstream>

#include "tests/data/chat_test_support.h"

namespace zeroth::data::chat_masks_test {
namespace {

using nlohmann::ordered_json;

std::string read_chat_fixture(const std::string& name) {
  std::ifstream file(fixture("chat_template/" + name), std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The conversations of the fixtures by their ids, with no message that says how it is trained.
std::map<std::string, ChatRecord> read_chats() {
  std::map<std::string, ChatRecord> chats;
  std::istringstream lines(read_chat_fixture("conversations.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto record = ordered_json::parse(line);
    const size_t count = record["messages"].size();
    chats[record["id"]] = {
        .messages = record["messages"],
        .tools = record.value("tools", ordered_json()),
        .template_kwargs = record.value("chat_template_kwargs", ordered_json::object()),
        .losses = std::vector<MessageLoss>(count, MessageLoss::kDefault)};
  }
  return chats;
}

// The trained tokens as ranges [first, end).
ordered_json trained_ranges(const TokenRecord& sample) {
  ordered_json ranges = ordered_json::array();
  for (size_t i = 0; i < sample.trained.size(); ++i) {
    if (!sample.trained[i]) continue;
    if (ranges.empty() || ranges.back()[1] != i) ranges.push_back({i, i});
    ranges.back()[1] = i + 1;
  }
  return ranges;
}

}  // namespace

TEST_CASE("What a record says about a message wins") {
  ChatRecord record = kTwoTurns();
  record.losses[2] = MessageLoss::kMasked;
  CHECK(trained(kChatMl, record) == "Yes.<|im_end|>");
  record.losses[2] = MessageLoss::kTrained;
  CHECK(trained(kChatMl, record, TrainOn::kLastAssistant) == "Hello!<|im_end|>|Yes.<|im_end|>");
}

TEST_CASE("Real templates train what their marked copies generate, with and without the marks") {
  const auto fixture_file = ordered_json::parse(read_chat_fixture("masks.json"));
  const auto chats = read_chats();
  std::map<std::string, int> equal;
  for (const auto& entry : fixture_file["cases"]) {
    const std::string name = entry["template"], id = entry["id"];
    CAPTURE(name);
    CAPTURE(id);
    const ordered_json& tokens = fixture_file["tokens"][name];
    const ChatTokenizer tokenizer(fixture_file["marks"], tokens);
    for (const char* const directory : {"templates/", "marked/"}) {
      ModelTemplates model;
      model.chat = ChatTemplate::parse(read_chat_fixture(directory + name + ".jinja"), name);
      model.special_tokens = tokens;
      ChatEncoder encoder(*tokenizer, std::move(model), {});
      const TokenRecord sample = encoder.encode(chats.at(id));
      REQUIRE(sample.ids.size() == entry["tokens"]);
      // An answer to a prompt that closes its thoughts does not write them.
      if (id == "think_off" && std::string_view(directory) == "templates/" && name == "qwen3") {
        CHECK(trained(*tokenizer, sample).find("<think>") == std::string::npos);
        continue;
      }
      CHECK(trained_ranges(sample) == entry["trained"]);
      ++equal[directory];
    }
  }
  CHECK(equal["templates/"] > 250);
  CHECK(equal["marked/"] == equal["templates/"] + 1);
}

TEST_CASE("A record can have the words of any message trained") {
  ChatRecord record = kTwoTurns();
  record.losses[0] = record.losses[3] = MessageLoss::kTrained;
  record.losses[1] = record.losses[2] = MessageLoss::kMasked;
  CHECK(trained(kChatMl, record) == "Be kind.<|im_end|>|More<|im_end|>|Yes.<|im_end|>");
  CHECK(trained("{% for m in messages %}{{ '<|im_start|>' + m.role }}{% if m.role == 'assistant' %}"
                "{% generation %}{{ m.content + '</s>' }}{% endgeneration %}{% else %}"
                "{{ m.content + '<|im_end|>' }}{% endif %}{% endfor %}",
                record) == "Be kind.<|im_end|>|More<|im_end|>|Yes.</s>");
}

TEST_CASE("What a record says about a message does not reach the words of the next one") {
  // As Gemma's: the system's words are in the user's turn.
  const std::string source =
      "{% for m in messages[1:] %}{{ '<|im_start|>' + m.role + '\\n' }}"
      "{% if loop.first %}{{ messages[0].content + '\\n\\n' }}{% endif %}"
      "{{ m.content + '<|im_end|>\\n' }}{% endfor %}";
  ChatRecord record = chat({{"system", "Be kind."}, {"user", "Hi"}, {"assistant", "Yes"}});
  record.losses[0] = MessageLoss::kTrained;
  CHECK(trained(source, record) == "Be kind.|Yes<|im_end|>");
  record.losses[0] = MessageLoss::kMasked;
  CHECK(trained(source, record, TrainOn::kAll) ==
        "<|im_start|>user\n|\n\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n");
}

TEST_CASE("Only an assistant's turn that has no end is counted as one") {
  const ChatTokenizer tokenizer;
  ChatEncoder encoder(*tokenizer,
                      templates("{% for m in messages %}{{ m.role + ':' + m.content }}"
                                "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}"
                                "{% endfor %}"),
                      {});
  ChatRecord record = chat({{"user", "Hi"}, {"assistant", "Yes"}});
  record.losses[0] = MessageLoss::kTrained;
  encoder.encode(record);
  CHECK(encoder.counts().turns == 1);
  CHECK(encoder.counts().turns_without_end == 0);
}

TEST_CASE("A message without words is no turn unless it is the assistant's") {
  ChatRecord record = chat({{"user", ""}, {"assistant", "Yes"}});
  record.losses[0] = MessageLoss::kTrained;
  CHECK(trained(kChatMl, record) == "Yes<|im_end|>");
}

TEST_CASE("What a record masks is not trained where all is, a prompt's messages are") {
  ChatRecord record = kTwoTurns();
  record.losses[2] = MessageLoss::kMasked;
  record.losses[3] = MessageLoss::kMasked;
  CHECK(trained(kChatMl, record, TrainOn::kAll) ==
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n|\n<|im_start|>user\n|\n<|im_start|>assistant\nYes.<|im_end|>\n");
  record = kTwoTurns();
  record.losses[2] = MessageLoss::kPrompt;
  CHECK(trained(kChatMl, record) == "Yes.<|im_end|>");
  CHECK(trained(kChatMl, record, TrainOn::kAll) == trained(kChatMl, kTwoTurns(), TrainOn::kAll));
}

}  // namespace zeroth::data::chat_masks_test
