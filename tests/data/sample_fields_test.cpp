#include "data/samples/record_reader.h"

#include <nlohmann/json.hpp>

#include "tests/data/data_test_support.h"

namespace zeroth::data::sample_fields_test {
namespace {

nlohmann::json record(const std::vector<const char*>& fields) {
  nlohmann::json object;
  for (const char* field : fields) object[field] = "x";
  return object;
}

}  // namespace

TEST_CASE("A text is trained whole, whatever else a record has but a prompt and a completion") {
  CHECK(choose_fields(record({"text", "answer", "question"})).text == "text");
  CHECK_FALSE(choose_fields(record({"text"})).guessed);
  check_contains(error_of([] {
                   choose_fields(record({"text", "prompt", "completion"}));
                 }),
                 "both 'text' and 'prompt' with 'completion'");
}

TEST_CASE("Pairs under usual names are recognised") {
  const std::pair<const char*, const char*> pairs[] = {
      {"question", "answer"}, {"instruction", "output"}, {"instruction", "response"},
      {"input", "output"},    {"query", "response"},     {"prompt", "answer"}};
  for (const auto& [prompt, completion] : pairs) {
    const SampleFields fields = choose_fields(record({prompt, completion, "id"}));
    CHECK(fields.prompt == prompt);
    CHECK(fields.completion == completion);
    CHECK(fields.guessed);
  }
  const SampleFields ours = choose_fields(record({"prompt", "completion", "question", "answer"}));
  CHECK(ours.completion == "completion");
  CHECK_FALSE(ours.guessed);
}

TEST_CASE("Records of another kind are named, with their fields and what works today") {
  const std::pair<std::vector<const char*>, const char*> cases[] = {
      {{"messages", "id"},
       "the records are chats (fields 'id', 'messages'): write each as a prompt"},
      {{"conversations"}, "the records are ShareGPT chats (fields 'conversations'): write each"},
      {{"prompt", "chosen", "rejected"},
       "the records are preferences (fields 'chosen', 'prompt', 'rejected'): training on "
       "preferences is not"},
      {{"instruction", "input", "output"},
       "the records are in Alpaca format (fields 'input', 'instruction', 'output'): several could "
       "be prompt or completion, and joining them is not supported yet; --prompt-field instruction "
       "--completion-field output trains on these two only"},
      {{"question", "answer", "response"},
       "the records are ambiguous (fields 'answer', 'question'"},
      {{"input_ids", "labels"},
       "the records are token ids (fields 'input_ids', 'labels'): ids are read from a .bin file"},
      {{"title", "body"}, "neither 'text' nor 'prompt' and 'completion' (fields 'body', 'title')"},
  };
  for (const auto& [fields, message] : cases) {
    check_contains(error_of([&, names = fields] { choose_fields(record(names)); }), message);
  }
  const auto turns = nlohmann::json::parse(R"([{"role": "user", "content": "x"}])");
  check_contains(error_of([&] {
                   choose_fields({{"prompt", turns}, {"completion", turns}});
                 }),
                 "the records are chats, as 'prompt' or 'completion' is an array: write each");
  check_contains(error_of([] { choose_fields(nlohmann::json::object()); }), "(fields none)");
}

}  // namespace zeroth::data::sample_fields_test
