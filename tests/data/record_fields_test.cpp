#include "data/records/record_fields.h"

#include "base/json/json.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::record_fields_test {
namespace {

using nlohmann::ordered_json;
using Reader = Record (*)(const ordered_json&, const RecordFields&);

const RecordFields kPair = {.prompt = "q", .completion = "a", .input = "input", .separator = "\n"};
const RecordFields kTokens = {.text = "input_ids"};

Record read(Reader reader, const RecordFields& fields, std::string_view text) {
  return reader(parse_ordered_json(text, {.name = "test"}), fields);
}

// Returns the parts of a text, each after + if it is trained, or -.
std::string texts(Reader reader, const RecordFields& fields, std::string_view text) {
  const auto record = std::get<TextRecord>(read(reader, fields, text));
  std::string shown;
  for (const TextPart& part : record.parts) {
    shown += (part.trained ? "+" : "-") + part.text;
  }
  return shown;
}

// Returns the messages, each after + or - if the record says whether it is trained, ~ if it is part
// of a prompt, or =.
std::string turns(Reader reader, const RecordFields& fields, std::string_view text) {
  const auto chat = std::get<ChatRecord>(read(reader, fields, text));
  REQUIRE(chat.losses.size() == chat.messages.size());
  std::string shown;
  for (size_t i = 0; i < chat.losses.size(); ++i) {
    constexpr std::string_view kMarks = "=+-~";
    shown += kMarks[static_cast<size_t>(chat.losses[i])];
    shown += chat.messages[i]["role"].get<std::string>() + ":";
    shown += chat.messages[i]["content"].get<std::string>() + " ";
  }
  return shown;
}

std::string tokens(std::string_view text) {
  const auto record = std::get<TokenRecord>(read(read_tokens, kTokens, text));
  REQUIRE(record.ids.size() == record.trained.size());
  std::string shown;
  for (size_t i = 0; i < record.ids.size(); ++i) {
    shown += (record.trained[i] ? "+" : "-") + std::to_string(record.ids[i]);
  }
  return shown;
}

std::string error(Reader reader, const RecordFields& fields, const std::string& text) {
  return error_of([&] { read(reader, fields, text); });
}

}  // namespace

TEST_CASE("A text is one part, and a pair is two, of which the completion is trained") {
  CHECK(texts(read_text, {.text = "t"}, R"({"t": "one\u0000", "late": 1})") ==
        std::string("+one\0", 5));
  CHECK(texts(read_text_pair, kPair, R"({"q": "2+3?", "a": "5"})") == "-2+3?\n+5");
  CHECK(texts(read_text_pair, kPair, R"({"q": "x", "a": ""})") == "-x\n+");
  CHECK(error(read_text, {.text = "t"}, R"({"txt": "two"})") == "no field 't'");
  CHECK(error(read_text, {.text = "t"}, R"({"t": null})") == "field 't' is null, not a string");
  CHECK(error(read_text, {.text = "t"}, R"({"t": 2})") == "field 't' is a number, not a string");
  CHECK(error(read_text_pair, kPair, R"({"q": "x"})") == "no field 'a'");
}

TEST_CASE("A pair of texts never loses the turns of a later record") {
  CHECK_NOTHROW(read(read_text_pair, kPair, R"({"q": "x", "a": "y", "history": [], "input": ""})"));
  for (const char* field : {R"("input": "z")", R"("history": [["h", "i"]])", R"("system": "s")"}) {
    check_contains(
        error(read_text_pair, kPair, R"({"q": "x", "a": "y", )" + std::string(field) + "}"),
        "would be ignored, as the first record has none");
  }
}

TEST_CASE("Messages of a prompt are not trained, also if they say so") {
  const RecordFields fields = {.prompt = "prompt", .completion = "completion", .tools = "tools"};
  CHECK(turns(read_message_pair, fields, R"({"system": "s", "prompt": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello", "weight": 1},
                {"role": "user", "content": "q", "weight": 0}],
              "completion": [{"role": "assistant", "content": "a"}]})") ==
        "=system:s ~user:Hi ~assistant:Hello -user:q =assistant:a ");
  const auto with_tools = std::get<ChatRecord>(read(read_message_pair, fields, R"({
      "prompt": [{"role": "user", "content": "q"}], "tools": [{"name": "now"}],
      "completion": [{"role": "assistant", "content": "a"}]})"));
  CHECK(with_tools.tools.dump() == R"([{"name":"now"}])");
  const std::string answer = R"([{"role": "assistant", "content": "a"}])";
  CHECK(error(read_message_pair, fields, R"({"prompt": )" + answer + R"(, "completion": "a"})") ==
        "field 'completion' is a string, not an array of messages");
  check_contains(error(read_message_pair, fields, R"({"prompt": )" + answer + R"(, "completion": [
                       {"role": "user", "content": "q"}]})"),
                 "nothing to train");
}

TEST_CASE("Input goes on a new line, and history comes before the question") {
  CHECK(turns(read_turns, kPair, R"({"q": "Add", "input": "2 3", "a": "5", "system": "s",
              "history": [["Hi", "Hello"]]})") ==
        "=system:s =user:Hi ~assistant:Hello =user:Add\n2 3 =assistant:5 ");
  for (const char* record :
       {R"({"q": "Add", "a": "5"})", R"({"q": "Add", "input": "", "a": "5", "history": []})",
        R"({"q": "Add", "input": null, "a": "5", "history": null, "system": null})",
        R"({"q": "", "input": "Add", "a": "5"})"}) {
    CHECK(turns(read_turns, kPair, record) == "=user:Add =assistant:5 ");
  }
  const RecordFields no_input = {.prompt = "q", .completion = "a", .input = "", .history = ""};
  CHECK(turns(read_turns, no_input,
              R"({"q": "Add", "": "2 3", "a": "5", "history": [["h", "i"]]})") ==
        "=user:Add =assistant:5 ");
  CHECK(error(read_turns, kPair, R"({"q": "x", "input": 2, "a": "y"})") ==
        "field 'input' is a number, not a string");
  CHECK(error(read_turns, kPair, R"({"q": "x"})") == "no field 'a'");
}

TEST_CASE("Pairs of a conversation are all turns") {
  CHECK(turns(read_question_pairs, {.messages = "conversation"},
              R"({"conversation": [{"human": "q", "assistant": "a"},
                                   {"human": "r", "assistant": "b"}]})") ==
        "=user:q =assistant:a =user:r =assistant:b ");
}

TEST_CASE("Labels of segments say which are trained") {
  const RecordFields fields = {.text = "segments"};
  CHECK(texts(read_segments, fields, R"({"segments": [{"label": false, "text": "Q:"},
              {"label": true, "text": " A"}]})") == "-Q:+ A");
  CHECK(error(read_segments, fields, R"({"segments": []})") == "field 'segments' has no segments");
  for (const char* segment : {R"({"text": "x"})", R"({"label": 1, "text": "x"})", "\"x\""}) {
    check_contains(error(read_segments, fields, R"({"segments": [)" + std::string(segment) + "]}"),
                   "segments[0] is not an object with 'text' and 'label'");
  }
}

TEST_CASE("Labels and masks of tokens say which are trained, and padding is left out") {
  CHECK(tokens(R"({"input_ids": [5, 6, 999999]})") == "+5+6+999999");
  CHECK(tokens(R"({"input_ids": [5, 6, 0], "labels": [-100, 6, -100],
                   "attention_mask": [1, 1, 0]})") == "-5+6");
  CHECK(tokens(R"({"input_ids": [5, 6], "completion_mask": [0, 1]})") == "-5+6");
  CHECK(tokens(R"({"input_ids": [5, 6], "assistant_masks": [true, false]})") == "+5-6");
  const std::pair<const char*, const char*> cases[] = {
      {R"({"input_ids": [1, 2, 3], "labels": [1, 2]})",
       "'labels' has 2 elements, but there are 3 tokens"},
      {R"({"input_ids": [1, 2], "labels": [2, -100]})", "labels[0] is 2, but this token is 1"},
      {R"({"input_ids": [1, 2], "attention_mask": [1]})", "'attention_mask' has 1 elements"},
      {R"({"input_ids": [1], "attention_mask": [2]})", "attention_mask[0] is 2, not 0 or 1"},
      {R"({"input_ids": [-1]})", "input_ids[0] is -1, not a token id"},
      {R"({"input_ids": [1.5]})", "input_ids[0] is 1.5, not a token id"},
      {R"({"input_ids": [2147483648]})", "not a token id"},
      {R"({"input_ids": ["a"]})", "input_ids[0] is \"a\", not a token id"},
      {R"({"input_ids": []})", "field 'input_ids' has no tokens"},
      {R"({"input_ids": 5})", "field 'input_ids' is a number, not an array of tokens"}};
  for (const auto& [text, message] : cases) {
    check_contains(error(read_tokens, kTokens, text), message);
  }
}

}  // namespace zeroth::data::record_fields_test
