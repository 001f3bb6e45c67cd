#include "data/records/record_format.h"

#include "base/json/json.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::record_format_test {
namespace {

using nlohmann::ordered_json;

const std::string kChat =
    R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])";
const std::string kShareGpt = R"([{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}])";

ordered_json parse(std::string_view text) {
  return parse_ordered_json(text, {.name = "test"});
}

// Returns a record whose fields, but those of messages, are texts.
ordered_json record(const std::vector<const char*>& names) {
  ordered_json object = ordered_json::object();
  for (const char* name : names) object[name] = "x";
  return object;
}

std::string describe(const ordered_json& first_record, const std::string& name = "",
                     const RecordFields& fields = {}) {
  const RecordFormat format = RecordFormat::recognize(first_record, name, fields);
  CHECK(format.description().starts_with(format.name()));
  return format.description();
}

std::string error(const ordered_json& first_record, const std::string& name = "",
                  const RecordFields& fields = {}) {
  return error_of([&] { RecordFormat::recognize(first_record, name, fields); });
}

}  // namespace

TEST_CASE("A text is trained, whatever else a record has but a prompt and a completion") {
  CHECK(describe(record({"text", "score"})) == "text: 'text' is trained");
  CHECK(describe(record({"text", "answer", "question"})) ==
        "text: 'text' is trained; not read: 'question', 'answer'");
  check_contains(error(record({"text", "prompt", "completion"})),
                 "both 'text' and 'prompt' with 'completion'");
  CHECK(describe(record({"text", "prompt", "completion"}), "text") ==
        "text: 'text' is trained; not read: 'prompt', 'completion'");
}

TEST_CASE("Documents under another name are read if the user says so") {
  const ordered_json document = record({"content", "meta"});
  check_contains(error(document), "(fields 'content', 'meta'): name the fields");
  check_contains(error(document), "--text-field content trains on this one");
  CHECK(describe(document, "", {.text = "content"}) == "text: 'content' is trained");
  CHECK(describe(document, "text") == "text: 'content' is trained");
  CHECK(describe(record({"document"}), "text") == "text: 'document' is trained");
  check_contains(error(record({"content", "document"}), "text"), "not in the format 'text'");
}

TEST_CASE("Pairs under usual names are recognized, and a newline goes between other names") {
  const std::pair<const char*, const char*> pairs[] = {
      {"question", "answer"},  {"instruction", "output"},   {"instruction", "response"},
      {"input", "output"},     {"query", "response"},       {"prompt", "answer"},
      {"problem", "solution"}, {"INSTRUCTION", "RESPONSE"}, {"prompt", "completion"}};
  for (const auto& [prompt, completion] : pairs) {
    const auto format = RecordFormat::recognize(record({prompt, completion, "id"}), "", {});
    CHECK(format.name() == "prompt-completion");
    CHECK(format.fields().prompt == prompt);
    CHECK(format.fields().completion == completion);
    CHECK(format.fields().separator == (completion == std::string("completion") ? "" : "\n"));
  }
  CHECK(describe(record({"prompt", "completion", "question", "answer"})) ==
        "prompt-completion: 'prompt' is the prompt, 'completion' is trained; not read: 'question', "
        "'answer'");
  const auto format = RecordFormat::recognize(record({"q", "a"}), "",
                                              {.prompt = "q", .completion = "a", .separator = "|"});
  const auto text =
      std::get<TextRecord>(format.read(parse(R"({"q": "1", "a": "2", "system": "s"})")));
  CHECK(text.parts[0].text == "1|");
  CHECK(text.parts[1].text == "2");
}

TEST_CASE("Lists of messages in a prompt and a completion are a chat") {
  const ordered_json lists = parse(R"({"prompt": )" + kChat + R"(, "completion": )" + kChat + "}");
  CHECK(describe(lists) ==
        "prompt-completion: messages of 'prompt' and 'completion', which is trained");
  CHECK(describe(lists, "", {.prompt = "prompt", .completion = "completion"}) == describe(lists));
  CHECK(error(parse(R"({"prompt": )" + kChat + R"(, "completion": "a"})")) ==
        "field 'completion' is a string, not an array of messages");
}

TEST_CASE("Instructions with input, a system message or history are turns of a chat") {
  CHECK(describe(record({"instruction", "input", "output"})) ==
        "alpaca: 'instruction' and 'input' are the user's turn, 'output' is trained");
  CHECK(describe(record({"instruction", "input", "response", "prompt"})) ==
        "alpaca: 'instruction' and 'input' are the user's turn, 'response' is trained; not read: "
        "'prompt'");
  CHECK(RecordFormat::recognize(record({"instruction", "output"}), "alpaca", {}).name() ==
        "alpaca");
  const ordered_json turns = parse(R"({"query": "q", "response": "r", "history": []})");
  CHECK(describe(turns) == "query-response: 'query' is the user's turn, 'response' is trained");
  CHECK(describe(turns, "", {.prompt = "query", .completion = "response"}) ==
        "prompt-completion: 'query' is the prompt, 'response' is trained");
  const auto format =
      RecordFormat::recognize(record({"system_prompt", "question", "response"}), "", {});
  CHECK(format.name() == "query-response");
  CHECK(format.fields().system == "system_prompt");
}

TEST_CASE("Messages are recognized under each usual name, and win over a text") {
  for (const std::string field : {"messages", "conversations", "conversation", "dialogue"}) {
    CHECK(describe(parse(R"({")" + field + R"(": )" + kChat + "}")) ==
          "messages (role, content) in '" + field + "'");
    CHECK(describe(parse(R"({")" + field + R"(": )" + kShareGpt + "}")) ==
          "sharegpt (from, value) in '" + field + "'");
    CHECK(describe(parse(R"({")" + field + R"(": [{"human": "q", "assistant": "a"}]})")) ==
          "human-assistant: pairs in '" + field + "'");
  }
  CHECK(describe(parse(R"({"text": "raw", "messages": )" + kChat + "}")) ==
        "messages (role, content) in 'messages'; not read: 'text'");
  CHECK(describe(parse(R"({"turns": )" + kShareGpt + "}"), "", {.messages = "turns"}) ==
        "sharegpt (from, value) in 'turns'");
  CHECK(error(parse(R"({"messages": "user: q"})")) ==
        "field 'messages' is a string, not an array of messages");
  CHECK(error(parse(R"({"messages": []})")) == "field 'messages' has no messages");
}

TEST_CASE("Segments and token ids are recognized") {
  CHECK(RecordFormat::recognize(parse(R"({"segments": [{"label": true, "text": "x"}]})"), "", {})
            .name() == "segments");
  CHECK(describe(parse(R"({"text": "x", "segments": [{"start": 0, "text": "x"}]})")) ==
        "text: 'text' is trained");
  CHECK(describe(parse(R"({"text": "x", "input_ids": [1], "labels": [1]})")) ==
        "tokenized: 'input_ids', of which 'labels' and masks are trained; not read: 'text'");
}

TEST_CASE("Preferences and ratings are refused by name") {
  const std::pair<std::string, const char*> cases[] = {
      {R"({"prompt": "q", "chosen": "a", "rejected": "b"})",
       "the records are preferences (fields 'prompt', 'chosen', 'rejected'): training on "
       "preferences (DPO) is not supported"},
      {R"({"messages": )" + kChat + R"(, "rejected_response": "b"})", "are preferences"},
      {R"({"conversations": [], "chosen": {"from": "gpt", "value": "r"}})", "are preferences"},
      {R"({"prompt": "q", "completion": "a", "label": true})",
       "the records are rated answers (fields 'prompt', 'completion', 'label')"},
      {R"({"messages": )" + kChat + R"(, "kto_tag": false})", "are rated answers"}};
  for (const auto& [text, message] : cases) check_contains(error(parse(text)), message);
  CHECK(describe(parse(R"({"text": "x", "label": true})")) == "text: 'text' is trained");
  CHECK(describe(record({"prompt", "chosen", "rejected"}), "",
                 {.prompt = "prompt", .completion = "chosen"}) ==
        "prompt-completion: 'prompt' is the prompt, 'chosen' is trained");
}

TEST_CASE("A record of no format is an error with its fields and what to do") {
  const std::pair<ordered_json, const char*> cases[] = {
      {record({"title", "body"}),
       "neither 'text' nor 'prompt' and 'completion' nor 'messages' (fields 'title', 'body')"},
      {record({"prompt"}), "(fields 'prompt')"},
      {ordered_json::object(), "(fields none)"},
      {record({"question", "answer", "response"}),
       "the records are ambiguous (fields 'question', 'answer', 'response'): several could be "
       "prompt or completion; --prompt-field question --completion-field answer trains on these"},
      {parse("[1]"), "a JSON array, not an object; name a file with one array of objects .json"},
      {parse("null"), "a JSON null, not an object"}};
  for (const auto& [object, message] : cases) check_contains(error(object), message);
}

TEST_CASE("Names of formats and fields that do not fit the record are errors") {
  const ordered_json text = record({"text"});
  check_contains(error(text, "jsonl"),
                 "unknown data format 'jsonl': it must be one of tokenized, "
                 "messages, sharegpt, human-assistant, segments, text, "
                 "prompt-completion, alpaca, query-response");
  check_contains(error(text, "alpaca"), "the records are not in the format 'alpaca'");
  check_contains(error(text, "preference"), "the records are preferences");
  check_contains(error(text, "", {.text = "body"}), "no field 'body' (fields 'text')");
  check_contains(error(text, "", {.prompt = "text"}), "must be given together");
  check_contains(error(text, "", {.text = "text", .messages = "text"}), "fields of two formats");
  check_contains(error(text, "messages", {.text = "text"}), "not in the format 'messages'");
  check_contains(error(text, "", {.separator = "\n"}),
                 "--separator goes between prompt and completion, but the samples are 'text'");
  CHECK_NOTHROW(describe(text, "", {.separator = ""}));
}

TEST_CASE("Later records must have the fields of the first one") {
  const auto text = RecordFormat::recognize(record({"text"}), "", {});
  CHECK(error_of([&] { text.read(parse(R"({"messages": )" + kChat + "}")); }) == "no field 'text'");
  CHECK(error_of([&] { text.read(parse("\"two\"")); }) == "a JSON string, not an object");
  const auto chats = RecordFormat::recognize(parse(R"({"messages": )" + kChat + "}"), "", {});
  check_contains(error_of([&] { chats.read(parse(R"({"messages": )" + kShareGpt + "}")); }),
                 "messages[0]: no field 'role'");
  const auto pair = RecordFormat::recognize(record({"instruction", "output"}), "", {});
  check_contains(error_of([&] {
                   pair.read(record({"instruction", "input", "output"}));
                 }),
                 "field 'input' would be ignored");
  CHECK_NOTHROW(RecordFormat::recognize(record({"question", "answer"}), "", {})
                    .read(record({"question", "answer", "input"})));
}

}  // namespace zeroth::data::record_format_test
