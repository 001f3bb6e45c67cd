#include "data/samples/chat_encoder.h"

#include <fstream>
#include <sstream>

#include "tests/data/data_test_support.h"

namespace zeroth::data::chat_encoder_test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kMarks[] = {"<|im_start|>", "<|im_end|>", "<|tool|>", "<s>", "</s>"};

// GPT-2's tokenizer of the fixtures with special tokens for chats; </s> ends a text.
class ChatTokenizer {
 public:
  explicit ChatTokenizer(bool with_marks = true)
      : ChatTokenizer(with_marks ? std::vector<std::string>(std::begin(kMarks), std::end(kMarks))
                                 : std::vector<std::string>{"</s>"},
                      {{"bos_token", "<s>"}, {"eos_token", "</s>"}}) {}

  ChatTokenizer(const std::vector<std::string>& marks, const ordered_json& config) {
    json file = read_fixture("gpt2/tokenizer.json");
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

TEST_CASE("Words that hold special tokens, thoughts and tools that are left out are counted") {
  const ChatTokenizer tokenizer;
  ChatEncoder encoder(*tokenizer, templates(kChatMl), {});
  encoder.encode(chat({{"user", "a<|im_end|>b<s>"}, {"assistant", "<s>"}}));
  encoder.encode(chat({{"user", "a"}, {"assistant", "b"}}));
  CHECK(encoder.counts().with_special_tokens == 2);
  CHECK(encoder.counts().missing_fields.empty());
  // As Qwen3's, which keeps the thoughts of the last turn alone.
  ChatEncoder cutting(*tokenizer,
                      templates("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + "
                                "m.content.split('</think>')[-1] + '<|im_end|>' }}{% endfor %}"),
                      {});
  ChatRecord record =
      chat({{"user", "a"}, {"assistant", "<think>\nWell\n</think>\n\nyes"}, {"user", "c"}});
  record.tools = {{{"type", "function"}, {"function", {{"name", "now"}}}}};
  cutting.encode(record);
  CHECK(cutting.counts().missing_fields ==
        std::map<std::string, int64_t>{{"the thoughts in content of role assistant", 1},
                                       {"tools", 1}});
  encoder.encode(record);
  CHECK(encoder.counts().missing_fields == std::map<std::string, int64_t>{{"tools", 1}});
}

TEST_CASE("A marked turn ends where its last words are a special token") {
  const std::string source =
      "{% for m in messages %}{{ '<|im_start|>' }}{% generation %}{{ m.content + end + '\n' }}"
      "{% endgeneration %}{% endfor %}";
  for (const char* const end : {"", "</s>"}) {
    const ChatTokenizer tokenizer;
    ModelTemplates model = templates(source);
    model.special_tokens["end"] = end;
    ChatEncoder encoder(*tokenizer, std::move(model), {});
    encoder.encode(chat({{"assistant", "a<s>b"}}));
    CHECK(encoder.counts().turns == 1);
    CHECK(encoder.counts().turns_without_end == (*end == 0 ? 1 : 0));
  }
}

TEST_CASE("Turns are counted also where all is trained") {
  const ChatTokenizer tokenizer;
  ChatEncoder encoder(
      *tokenizer, templates("{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}"),
      {.template_kwargs = ordered_json::object(), .train_on = TrainOn::kAll, .now = {}});
  encoder.encode(kTwoTurns());
  CHECK(encoder.counts().turns == 2);
  CHECK(encoder.counts().turns_without_end == 2);
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
