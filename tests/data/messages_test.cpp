#include "data/records/messages.h"

#include "base/json/json.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::messages_test {
namespace {

using nlohmann::ordered_json;

ordered_json parse(std::string_view text) {
  return parse_ordered_json(text, {.name = "test", .exact_integers = true});
}

ChatRecord read_chat(const ordered_json& record, const MessageTags& tags) {
  ChatRecord chat;
  add_messages(chat, record, tags.role == "role" ? "messages" : "conversations", tags);
  finish_chat(chat, record, "system", "tools");
  REQUIRE(chat.losses.size() == chat.messages.size());
  return chat;
}

ChatRecord messages(std::string_view text) {
  return read_chat(parse(text), template_tags());
}

ChatRecord sharegpt(std::string_view text) {
  return read_chat(parse(text), sharegpt_tags());
}

// A record of a question with these members, and an answer.
std::string with_question(const std::string& members) {
  return R"({"messages": [{)" + members + R"(}, {"role": "assistant", "content": "a"}]})";
}

// A record of a question, and an answer with these members.
std::string with_answer(const std::string& members, const std::string& fields = "") {
  return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", )" + members +
         "}]" + fields + "}";
}

}  // namespace

TEST_CASE("Messages keep their members and their order, and those that mean nothing go") {
  const ChatRecord chat = messages(
      with_answer(R"("name": null, "content": "a", "tool_calls": null, "reasoning_content": null,
                     "refusal": null, "thinking": "t")"));
  CHECK(chat.messages.dump() ==
        R"([{"role":"user","content":"q"},{"role":"assistant","content":"a",)"
        R"("refusal":null,"thinking":"t"}])");
  CHECK(chat.losses == std::vector(2, MessageLoss::kDefault));
  CHECK(chat.tools.is_null());
  CHECK(chat.template_kwargs == ordered_json::object());
}

TEST_CASE("Switches of a message become its loss and leave the message") {
  using enum MessageLoss;
  const std::pair<const char*, MessageLoss> cases[] = {{R"("weight": 0)", kMasked},
                                                       {R"("weight": 1.0)", kTrained},
                                                       {R"("training": false)", kMasked},
                                                       {R"("train": true)", kTrained},
                                                       {R"("loss": false)", kMasked},
                                                       {R"("loss": null)", kDefault},
                                                       {R"("weight": 0, "train": true)", kMasked}};
  for (const auto& [members, loss] : cases) {
    const ChatRecord chat = messages(with_answer(R"("content": "a", )" + std::string(members)));
    CHECK(chat.losses == std::vector{kDefault, loss});
    CHECK(chat.messages[1].dump() == R"({"role":"assistant","content":"a"})");
  }
  // Of other roles axolotl's turn something on.
  const std::pair<const char*, MessageLoss> questions[] = {{R"("weight": 1)", kDefault},
                                                           {R"("loss": true)", kDefault},
                                                           {R"("train": true)", kTrained},
                                                           {R"("training": false)", kMasked},
                                                           {R"("weight": 0)", kMasked}};
  for (const auto& [members, loss] : questions) {
    const ChatRecord chat =
        messages(with_question(R"("role": "user", "content": "q", )" + std::string(members)));
    CHECK(chat.losses == std::vector{loss, kDefault});
  }
  for (const char* name : {"masked", "loss_scale", "train_detail", "training_detail"}) {
    check_contains(
        error_of(
            [&] { messages(with_answer(R"("content": "a", ")" + std::string(name) + R"(": 1)")); }),
        "field '" + std::string(name) + "' is not supported: remove it, or write 'training'");
  }
  for (const char* value : {"0.5", "\"no\"", "2"}) {
    check_contains(error_of([&] {
                     messages(with_answer(R"("content": "a", "weight": )" + std::string(value)));
                   }),
                   "messages[1]: 'weight' is " + std::string(value));
  }
}

TEST_CASE("Tools, calls and arguments are objects, whatever they are in the record") {
  const std::string tools = R"([{"type":"function","function":{"name":"now","parameters":{}}}])";
  const std::string object =
      R"([{"type":"function","function":{"name":"now","arguments":{"z":1}}}])";
  const std::string text =
      R"([{"type":"function","function":{"name":"now","arguments":"{\"z\": 1}"}}])";
  for (const std::string& calls : {object, text, ordered_json(object).dump()}) {
    for (const std::string& field : {tools, ordered_json(tools).dump()}) {
      const ChatRecord chat = messages(
          with_answer(R"("content": null, "tool_calls": )" + calls, ", \"tools\": " + field));
      CHECK(chat.messages[1]["tool_calls"].dump() == object);
      CHECK(chat.messages[1]["content"].is_null());
      CHECK(chat.tools.dump() == tools);
    }
  }
  const ChatRecord unwrapped =
      messages(with_answer(R"("tool_calls": [{"name": "now", "arguments": "{}"}])"));
  CHECK(unwrapped.messages[1]["tool_calls"].dump() == R"([{"name":"now","arguments":{}}])");
  for (const char* none : {"null", "\"\"", "[]", "\"[]\"", "\"null\""}) {
    CHECK(messages(with_answer(R"("content": "a")", ", \"tools\": " + std::string(none)))
              .tools.is_null());
  }
}

TEST_CASE("Malformed tools and calls are errors that name the member") {
  const std::pair<std::string, const char*> cases[] = {
      {with_answer(R"("content": "a")", R"(, "tools": "[{")"), "tools:1:2: [0]: not JSON"},
      {with_answer(R"("content": "a")", R"(, "tools": {"name": "f"})"),
       "'tools' is an object, not an array"},
      {with_answer(R"("content": "a")", R"(, "tools": ["now"])"), "'tools' is a string"},
      {with_answer(R"("tool_calls": [{"name": "f", "arguments": "{"}])"),
       "messages[1]: arguments:1:1: not JSON"},
      {with_answer(R"("tool_calls": [{"name": "f", "arguments": "5"}])"),
       "'arguments' is a number, not an object"},
      {with_answer(R"("tool_calls": [{"function": {"arguments": {}}}])"), "no field 'name'"},
      {with_answer(R"("tool_calls": {"name": "f"})"), "'tool_calls' is an object, not an array"},
      {with_answer(
           R"("tool_calls": [{"name": "f", "arguments": "{\"n\": 18446744073709551616}"}])"),
       "n: 18446744073709551616 does not fit 64 bits"},
      {with_answer(R"("content": null, "function_call": {"name": "f"})"), "write 'tool_calls'"},
      {with_answer(R"("content": "a")", R"(, "functions": [{"name": "f"}])"), "write 'tools'"},
      {with_answer(R"("content": "a")", R"(, "chat_template_kwargs": [1])"), "not an object"}};
  for (const auto& [text, message] : cases) {
    check_contains(error_of([&, record = text] { messages(record); }), message);
  }
}

TEST_CASE("Arguments of the template are those of the record") {
  const ChatRecord chat = messages(
      with_answer(R"("content": "a")", R"(, "chat_template_kwargs": {"enable_thinking": false})"));
  CHECK(chat.template_kwargs == ordered_json{{"enable_thinking", false}});
}

TEST_CASE("Only a message with calls or reasoning may have no content") {
  CHECK_NOTHROW(messages(with_answer(R"("reasoning_content": "r")")));
  CHECK_NOTHROW(messages(with_answer(R"("content": "")")));
  const std::pair<std::string, const char*> cases[] = {
      {with_question(R"("role": "user")"), "messages[0]: no field 'content'"},
      {with_answer(R"("content": null)"), "messages[1]: 'content' is null"},
      {with_answer(R"("content": null, "tool_calls": [])"), "'content' is null"},
      {with_question(R"("role": "user", "content": 5)"),
       "messages[0]: 'content' is a number, not a string or an array of text parts"},
      {with_question(R"("content": "q")"), "messages[0]: no field 'role'"},
      {with_question(R"("role": "bot", "content": "q")"),
       "messages[0]: unknown role \"bot\": it must be one of system, developer, user, assistant, "
       "tool, function, ipython"},
      {with_question(R"("role": "human", "content": "q")"), "unknown role \"human\""},
      {with_question(R"("role": null, "content": "q")"), "unknown role null"}};
  for (const auto& [text, message] : cases) {
    check_contains(error_of([&, record = text] { messages(record); }), message);
  }
}

TEST_CASE("Records without messages or an answer are errors") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": []})", "field 'messages' has no messages"},
      {R"({"messages": "user: q"})", "field 'messages' is a string, not an array of messages"},
      {R"({"messages": null})", "field 'messages' is null"},
      {R"({"text": "x"})", "no field 'messages'"},
      {R"({"messages": ["q", "a"]})",
       "messages[0]: it is a string, not an object with 'role' and 'content'"},
      {R"({"messages": [{"role": "user", "content": "q"}]})", "nothing to train"}};
  for (const auto& [text, message] : cases) {
    check_contains(error_of([&, record = text] { messages(record); }), message);
  }
}

TEST_CASE("A chat of questions alone is one if some are trained") {
  CHECK(messages(R"({"messages": [{"role": "user", "content": "q", "train": true}]})").losses ==
        std::vector{MessageLoss::kTrained});
}

TEST_CASE("Text parts stay until they are joined, other parts are refused") {
  ChatRecord chat = messages(R"({"messages": [
      {"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": " b"}]},
      {"role": "assistant", "content": "c"}]})");
  CHECK(chat.messages[0]["content"].size() == 2);
  CHECK(join_text_parts(chat) == 1);
  CHECK(chat.messages[0].dump() == R"({"role":"user","content":"a  b"})");
  CHECK(join_text_parts(chat) == 0);
  for (const char* type : {"image", "image_url", "input_audio", "video"}) {
    const std::string part = "[{\"type\": \"" + std::string(type) + "\"}]";
    check_contains(
        error_of([&] { messages(with_question(R"("role": "user", "content": )" + part)); }),
        "messages[0]: a part of type '" + std::string(type) + "' is not supported");
  }
  check_contains(
      error_of([] { messages(with_answer(R"("content": "a")", R"(, "images": ["cat.png"])")); }),
      "field 'images' is not supported");
  CHECK_NOTHROW(messages(with_answer(R"("content": "a")", R"(, "images": [], "audio": null)")));
}

TEST_CASE("ShareGPT's tags become roles, and its calls tool_calls") {
  const ChatRecord chat = sharegpt(R"({"system": "s", "conversations": [
      {"from": "human", "value": "q", "weight": null},
      {"from": "function_call", "value": "{\"name\": \"now\", \"arguments\": {\"z\": 1}}"},
      {"from": "observation", "value": "12:00"},
      {"from": "gpt", "value": "a", "weight": 0}], "tools": "[{\"name\": \"now\"}]"})");
  CHECK(chat.messages.dump() ==
        R"([{"role":"system","content":"s"},{"role":"user","content":"q"},)"
        R"({"role":"assistant","content":"","tool_calls":[{"type":"function","function":)"
        R"({"name":"now","arguments":{"z":1}}}]},{"role":"tool","content":"12:00"},)"
        R"({"role":"assistant","content":"a"}])");
  CHECK(chat.losses.back() == MessageLoss::kMasked);
  CHECK(chat.tools.dump() == R"([{"name":"now"}])");
  for (const char* tag : {"gpt", "assistant", "chatgpt", "bing", "bard"}) {
    const std::string answer = R"({"from": ")" + std::string(tag) + R"(", "value": "a"})";
    const ChatRecord one = sharegpt(R"({"conversations": [)" + answer + "]}");
    CHECK(one.messages[0]["role"] == "assistant");
  }
}

TEST_CASE("Members that say the same twice are read once") {
  const ChatRecord chat = sharegpt(R"({"system": "s", "conversations": [
      {"from": "system", "value": "s"},
      {"from": "gpt", "value": "a", "role": "user", "content": "b"}]})");
  CHECK(chat.messages.dump() ==
        R"([{"role":"system","content":"s"},{"role":"assistant","content":"a"}])");
}

TEST_CASE("ShareGPT's unknown tags, two assistants and two system messages are errors") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"conversations": [{"from": "bot", "value": "q"}]})",
       "conversations[0]: unknown from \"bot\": it must be one of human, user, gpt"},
      {R"({"conversations": [{"from": "bing", "value": "q"}, {"from": "gpt", "value": "r"}]})",
       "conversations[1]: from 'gpt' after 'bing': both are the assistant's"},
      {R"({"conversations": [{"from": "function_call", "value": "now"}]})",
       "conversations[0]: function_call:1:2: not JSON"},
      {R"({"conversations": [{"value": "q"}]})", "conversations[0]: no field 'from'"},
      {R"({"conversations": [{"from": "gpt"}]})", "conversations[0]: no field 'value'"},
      {R"({"conversations": [{"from": "function_call", "value": null}]})",
       "conversations[0]: 'function_call' is null, not an object"},
      {
          R"({"system": "x", "conversations": [{"from": "system", "value": "s"},
           {"from": "gpt", "value": "r"}]})",
          "field 'system' and the first message are two system messages"}};
  for (const auto& [text, message] : cases) {
    check_contains(error_of([&, record = text] { sharegpt(record); }), message);
  }
}

TEST_CASE("Pairs are turns") {
  ChatRecord chat;
  add_pairs(chat, parse(R"({"history": [["q", "a"], {"human": "r", "assistant": "b"}]})"),
            "history", MessageLoss::kMasked);
  CHECK(chat.messages.dump() ==
        R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"},)"
        R"({"role":"user","content":"r"},{"role":"assistant","content":"b"}])");
  CHECK(chat.losses[3] == MessageLoss::kMasked);
  for (const char* pair : {R"(["q"])", R"(["q", 1])", "\"q\""}) {
    check_contains(error_of([&] {
                     add_pairs(chat, parse(R"({"h": [)" + std::string(pair) + "]}"), "h",
                               MessageLoss::kDefault);
                   }),
                   "h[0] is not a pair");
  }
}

}  // namespace zeroth::data::messages_test
