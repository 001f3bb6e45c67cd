#include "base/json/json.h"
#include "data/records/record_format.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::dataset_info_test {
namespace {

DatasetInfo find(const std::string& members) {
  const auto info = parse_ordered_json(R"({"x": {"file_name": "x.jsonl", )" + members + "}}",
                                       {.name = "dataset_info.json"});
  return find_dataset_info(info, "x");
}

// Reads a record of the entry, as one of its file.
ChatRecord read(const DatasetInfo& info, std::string_view text) {
  const auto record = parse_ordered_json(text, {.name = "x.jsonl"});
  return std::get<ChatRecord>(
      RecordFormat::recognize(record, info.format, info.fields).read(record));
}

}  // namespace

TEST_CASE("An entry without columns is Alpaca's") {
  const DatasetInfo info = find(R"("formatting": "alpaca")");
  CHECK(info.file_name == "x.jsonl");
  CHECK(info.format == "alpaca");
  CHECK(read(info, R"({"instruction": "i", "input": "j", "output": "o", "system": "s",
                       "history": [["q", "a"]]})")
            .messages.dump() ==
        R"([{"role":"user","content":"i\nj"},{"role":"assistant","content":"o"}])");
}

TEST_CASE("Columns reset those that they do not name") {
  const DatasetInfo info = find(R"("columns": {"prompt": "question", "response": "answer"})");
  CHECK(info.format == "alpaca");
  CHECK(read(info, R"({"question": "q", "input": "j", "answer": "a"})").messages.dump() ==
        R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])");
  check_contains(error_of([] { find(R"("columns": {"prompt": "question"})"); }),
                 "data set 'x': 'columns' resets what it does not name, so there is no answer to "
                 "'question'");
  check_contains(error_of([] { find(R"("columns": {"response": "answer"})"); }),
                 "name 'prompt' too");
  check_contains(error_of([] { find(R"("formatting": "sharegpt", "columns": {"system": "s"})"); }),
                 "name 'messages' too");
}

TEST_CASE("A column of documents is a text") {
  const DatasetInfo info = find(R"("columns": {"prompt": "text"})");
  CHECK(info.format == "text");
  CHECK(info.fields.text == "text");
  CHECK(info.fields.prompt.empty());
}

TEST_CASE("Chats have LLaMA-Factory's tags or those of the entry") {
  const DatasetInfo sharegpt =
      find(R"("formatting": "sharegpt", "columns": {"messages": "c", "tools": "t"})");
  CHECK(sharegpt.format == "sharegpt");
  const ChatRecord chat = read(sharegpt, R"({"system": "s", "t": "[{\"name\": \"f\"}]", "c": [
      {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})");
  CHECK(chat.messages[0]["role"] == "user");
  CHECK(chat.tools.size() == 1);
  const DatasetInfo tagged = find(R"("formatting": "sharegpt", "tags": {
      "role_tag": "who", "content_tag": "says", "user_tag": "me", "assistant_tag": "you"})");
  CHECK(read(tagged, R"({"conversations": [{"who": "me", "says": "q"}, {"who": "you", "says": "a"},
                                           {"who": "observation", "says": "o"}]})")
            .messages.dump() ==
        R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"},)"
        R"({"role":"tool","content":"o"}])");
  const DatasetInfo openai = find(R"("formatting": "openai", "columns": {"messages": "m"})");
  CHECK(read(openai, R"({"m": [{"role": "assistant", "content": "a"}]})").messages.size() == 1);
}

TEST_CASE("Entries that need more are errors") {
  const std::pair<const char*, const char*> cases[] = {
      {R"("ranking": true)", "'ranking' is not supported: training on preferences"},
      {R"("columns": {"prompt": "p", "chosen": "c"})", "'chosen' is not supported"},
      {R"("columns": {"messages": "m", "images": "i"})", "'images' is not supported: training is"},
      {R"("num_samples": 5)", "'num_samples' is not supported"},
      {R"("columns": {"respones": "r"})", "'columns' has an unknown name 'respones'"},
      {R"("formatting": "chatml")", "unknown 'formatting' 'chatml'"}};
  for (const auto& [members, message] : cases) {
    check_contains(error_of([&, text = members] { find(text); }), message);
  }
  CHECK_NOTHROW(find(R"("ranking": false, "columns": {"prompt": "p", "response": "r"})"));
  const auto hub = parse_ordered_json(R"({"x": {"hf_hub_url": "a/b"}})", {.name = "test"});
  check_contains(error_of([&] { find_dataset_info(hub, "x"); }), "data set 'x': no 'file_name'");
  CHECK(error_of([&] { find_dataset_info(hub, "y"); }) == "no data set 'y'");
}

}  // namespace zeroth::data::dataset_info_test
