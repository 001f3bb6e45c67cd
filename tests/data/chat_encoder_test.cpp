#include "data/samples/chat_encoder.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::chat_encoder_test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kMarks[] = {"<|im_start|>", "<|im_end|>", "<|tool|>", "<s>", "</s>"};

// GPT-2's tokenizer of the fixtures with special tokens for chats; </s> ends a text.
class ChatTokenizer {
 public:
  explicit ChatTokenizer(bool with_marks = true) {
    json file = read_fixture("gpt2/tokenizer.json");
    int id = 500;
    for (const char* const mark : kMarks) {
      if (!with_marks && std::string_view(mark) != "</s>") continue;
      file["added_tokens"].push_back({{"id", id++}, {"content", mark}, {"special", true}});
    }
    directory_.write("tokenizer.json", file.dump());
    directory_.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
    tokenizer_.emplace(Tokenizer::load(directory_.path()));
  }

  const Tokenizer& operator*() const { return *tokenizer_; }

 private:
  TempFolder directory_;
  std::optional<Tokenizer> tokenizer_;
};

// As Qwen's: a header, the words, a token that ends the turn, and a newline.
constexpr const char* kChatMl =
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

ChatRecord chat(std::initializer_list<std::pair<const char*, const char*>> messages) {
  ChatRecord record{.messages = ordered_json::array(), .tools = nullptr, .losses = {}};
  for (const auto& [role, content] : messages) {
    record.messages.push_back({{"role", role}, {"content", content}});
    record.losses.push_back(MessageLoss::kDefault);
  }
  return record;
}

ModelTemplates templates(const std::string& source) {
  ModelTemplates result;
  result.chat = ChatTemplate::parse(source, "test.jinja");
  result.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  return result;
}

// The trained tokens as text, those that are not adjacent separated by '|'.
std::string trained(const Tokenizer& tokenizer, const TokenRecord& sample) {
  std::string text;
  bool previous = false;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    if (sample.trained[i] && !previous && !text.empty()) text += '|';
    if (sample.trained[i]) text += tokenizer.decode(std::span(&sample.ids[i], 1));
    previous = sample.trained[i];
  }
  return text;
}

std::string trained(const std::string& source, const ChatRecord& record,
                    TrainOn train_on = TrainOn::kAssistant) {
  const ChatTokenizer tokenizer;
  ChatEncoder encoder(*tokenizer, templates(source),
                      {.template_kwargs = ordered_json::object(), .train_on = train_on, .now = {}});
  return trained(*tokenizer, encoder.encode(record));
}

const auto kTwoTurns = [] {
  return chat({{"system", "Be kind."},
               {"user", "Hi"},
               {"assistant", "Hello!"},
               {"user", "More"},
               {"assistant", "Yes."}});
};

}  // namespace

TEST_CASE("A chat has the ids of its rendered text, and no other special tokens") {
  const ChatTokenizer tokenizer;
  ChatEncoder encoder(*tokenizer, templates(kChatMl), {});
  const TokenRecord sample = encoder.encode(chat({{"user", "Hi"}, {"assistant", "Yes"}}));
  CHECK(sample.ids ==
        (*tokenizer)
            .encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"));
  CHECK(sample.trained.size() == sample.ids.size());
}

TEST_CASE("The assistant's words are trained up to and with the token that ends the turn") {
  CHECK(trained(kChatMl, kTwoTurns()) == "Hello!<|im_end|>|Yes.<|im_end|>");
  CHECK(trained(kChatMl, kTwoTurns(), TrainOn::kLastAssistant) == "Yes.<|im_end|>");
  CHECK(trained(kChatMl, chat({{"user", "Hi"}, {"assistant", ""}})) == "<|im_end|>");
  CHECK(trained(kChatMl, chat({{"user", "Hi"}, {"assistant", "a<|im_end|>b"}})) ==
        "a<|im_end|>b<|im_end|>");
  const std::string all = trained(kChatMl, chat({{"user", "Hi"}}), TrainOn::kAll);
  CHECK(all == "<|im_start|>user\nHi<|im_end|>\n");
}

TEST_CASE("What a record says about a message wins") {
  ChatRecord record = kTwoTurns();
  record.losses[2] = MessageLoss::kMasked;
  CHECK(trained(kChatMl, record) == "Yes.<|im_end|>");
  record.losses[2] = MessageLoss::kTrained;
  CHECK(trained(kChatMl, record, TrainOn::kLastAssistant) == "Hello!<|im_end|>|Yes.<|im_end|>");
}

TEST_CASE("The template's own words within a turn are trained, those of its header are not") {
  // Qwen3's empty thoughts, and calls with words around them.
  const std::string source =
      "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
      "{%- if m.role == 'assistant' %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
      "{{- m.content }}"
      "{%- for c in m.tool_calls or [] %}{{ '<call>' + c.name + '</call>' }}{% endfor %}"
      "{{- '<|im_end|>\\n' }}{% endfor %}"
      "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  ChatRecord record = chat({{"user", "Hi"}, {"assistant", "Let me see."}});
  CHECK(trained(source, record) == "<think>\n\n</think>\n\nLet me see.<|im_end|>");
  record.messages[1]["tool_calls"] = {{{"name", "now"}}};
  CHECK(trained(source, record) == "<think>\n\n</think>\n\nLet me see.<call>now</call><|im_end|>");
  record.messages[1]["content"] = "";
  CHECK(trained(source, record) == "<think>\n\n</think>\n\n<call>now</call><|im_end|>");
}

TEST_CASE("A header that another message's words or the prompt's own ones make is not trained") {
  // Phi-3's: the user's turn ends with the assistant's header.
  CHECK(trained("{% for m in messages %}{% if m.role == 'user' %}{{ m.content + '<|im_end|>' + "
                "'ASSISTANT:' }}{% else %}{{ m.content + '</s>' }}{% endif %}{% endfor %}",
                chat({{"user", "Hi"}, {"assistant", "Yes"}})) == "Yes</s>");
  // DeepSeek-R1's: the prompt also opens the thoughts.
  CHECK(trained("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '</s>' }}"
                "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' "
                "}}{% endif %}",
                chat({{"user", "Hi"}, {"assistant", "<b>Yes"}})) == "<b>Yes</s>");
  // A template that ends a text, but not a prompt.
  CHECK(trained("{% for m in messages %}{{ '<|im_start|>' + m.role + m.content + '<|im_end|>' }}"
                "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% else %}"
                "{{ eos_token }}{% endif %}",
                chat({{"user", "Hi"}, {"assistant", ""}})) == "<|im_end|>");
}

TEST_CASE("Where a template marks what is generated, this is trained") {
  const std::string source =
      "{% for m in messages %}{{ '<|im_start|>' + m.role }}{% if m.role == 'assistant' %}"
      "{% generation %}{{ ':' + m.content + '<|im_end|>' }}{% endgeneration %}{% else %}"
      "{{ m.content }}{% endif %}{% endfor %}";
  CHECK(trained(source, kTwoTurns()) == ":Hello!<|im_end|>|:Yes.<|im_end|>");
  CHECK(trained(source, kTwoTurns(), TrainOn::kLastAssistant) == ":Yes.<|im_end|>");
}

TEST_CASE("A turn ends where generation stops, or else with the first special token behind it") {
  // Marks of calls are special tokens, too; </s> ends the turn.
  CHECK(trained("{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}"
                "{{ '<|tool|></s>' }}{% endif %}{% endfor %}",
                chat({{"user", "Hi"}, {"assistant", "Yes"}})) == "Yes<|tool|></s>");
  // Written once, behind all messages.
  CHECK(trained("{% for m in messages %}{{ m.role + ': ' + m.content + ' ' }}{% endfor %}</s>",
                chat({{"user", "Hi"}, {"assistant", "Yes"}})) == "Yes </s>");
}

TEST_CASE("Where marks are no tokens, the template's words end a turn") {
  const ChatTokenizer tokenizer(/*with_marks=*/false);
  ChatEncoder encoder(*tokenizer, templates(kChatMl), {});
  CHECK(trained(*tokenizer, encoder.encode(kTwoTurns())) == "Hello!<|im_end|>|Yes.<|im_end|>");
  CHECK(encoder.counts().turns_without_end == 0);
}

TEST_CASE("Turns without an end, and fields that a template leaves out, are counted") {
  const ChatTokenizer tokenizer;
  ChatEncoder encoder(*tokenizer,
                      templates("{% for m in messages %}{% if m.role != 'system' %}"
                                "{{ m.role + ':' + m.content + '\\n' }}{% endif %}{% endfor %}"),
                      {});
  ChatRecord record = kTwoTurns();
  record.messages[2]["reasoning_content"] = "thoughts";
  record.messages[4]["reasoning_content"] = " ";
  CHECK(trained(*tokenizer, encoder.encode(record)) == "Hello!|Yes.");
  CHECK(encoder.counts().turns == 2);
  CHECK(encoder.counts().turns_without_end == 2);
  const std::map<std::string, int64_t> missing = {{"content of role system", 1},
                                                  {"reasoning_content of role assistant", 1}};
  CHECK(encoder.counts().missing_fields == missing);
}

TEST_CASE("A content of parts is placed by some templates only") {
  const ChatTokenizer tokenizer;
  CHECK_FALSE(ChatEncoder(*tokenizer, templates(kChatMl), {}).places_text_parts());
  CHECK_FALSE(
      ChatEncoder(*tokenizer, templates("{{ messages[0].content }}"), {}).places_text_parts());
  CHECK(ChatEncoder(*tokenizer,
                    templates("{% for m in messages %}{% for p in m.content %}{{ p.text }}"
                              "{% endfor %}{% endfor %}"),
                    {})
            .places_text_parts());
}

TEST_CASE("Arguments of a record win over those of all, and chats with tools have a template") {
  const ChatTokenizer tokenizer;
  ModelTemplates both = templates("{{ x }}{% for m in messages %}{{ m.content }}</s>{% endfor %}");
  both.tools = ChatTemplate::parse(
      "{{ tools | length }}{% for m in messages %}{{ m.content }}</s>"
      "{% endfor %}",
      "tools.jinja");
  ChatEncoder encoder(*tokenizer, both,
                      {.template_kwargs = {{"x", "1"}}, .train_on = TrainOn::kAll, .now = {}});
  ChatRecord record = chat({{"assistant", "Yes"}});
  CHECK(trained(*tokenizer, encoder.encode(record)) == "1Yes</s>");
  record.template_kwargs = {{"x", "2"}};
  CHECK(trained(*tokenizer, encoder.encode(record)) == "2Yes</s>");
  record.tools = ordered_json::array({{{"name", "now"}}});
  CHECK(trained(*tokenizer, encoder.encode(record)) == "1Yes</s>");
}

TEST_CASE("A template's refusal is an error with its place") {
  const ChatTokenizer tokenizer;
  ChatEncoder encoder(*tokenizer, templates("{{ raise_exception('no system') }}"), {});
  check_contains(error_of([&] { encoder.encode(kTwoTurns()); }), "test.jinja:1:");
  check_contains(error_of([&] { encoder.encode(kTwoTurns()); }), "no system");
}

}  // namespace zeroth::data::chat_encoder_test
