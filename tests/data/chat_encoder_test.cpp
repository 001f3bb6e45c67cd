#include "data/samples/chat_encoder.h"

#include "tests/data/chat_test_support.h"

namespace zeroth::data::chat_encoder_test {

using nlohmann::json;
using nlohmann::ordered_json;

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

TEST_CASE("White space that special tokens take in is neither words nor an end") {
  // Phi-3's tokens take in what follows them.
  json file = read_fixture("gpt2/tokenizer.json");
  int id = 500;
  for (const char* const mark : {"<|user|>", "<|assistant|>", "<|end|>"}) {
    file["added_tokens"].push_back(
        {{"id", id++}, {"content", mark}, {"special", true}, {"rstrip", true}});
  }
  TempFolder directory;
  directory.write("tokenizer.json", file.dump());
  directory.write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  const Tokenizer tokenizer = Tokenizer::load(directory.path());
  for (const bool marked : {false, true}) {
    const std::string source = std::string("{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}") +
                               (marked ? "{% generation %}" : "") +
                               "{{ m.content + '<|end|>\\n' }}" +
                               (marked ? "{% endgeneration %}" : "") + "{% endfor %}";
    ChatEncoder encoder(tokenizer, templates(source), {});
    const TokenRecord sample =
        encoder.encode(chat({{"user", " Hi"}, {"assistant", "Yes "}, {"assistant", " No"}}));
    CHECK(encoder.counts().with_special_tokens == 0);
    CHECK(encoder.counts().turns_without_end == 0);
    CHECK(encoder.counts().turns == 2);
    CHECK(trained(tokenizer, sample).ends_with("No<|end|>"));
  }
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
  // Words of another message are no thoughts, and no tools either.
  cutting.encode(chat({{"user", "Well"}, {"assistant", "<think>Well</think>yes"}}));
  CHECK(cutting.counts().missing_fields.at("the thoughts in content of role assistant") == 2);
  record.messages[0]["content"] = "What is it now?";
  encoder.encode(record);
  CHECK(encoder.counts().missing_fields.at("tools") == 2);
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
