#include "data/samples/dataset.h"

#include <algorithm>

#include "tests/data/data_test_support.h"

namespace zeroth::data::jsonl_samples_test {

namespace {

using Ids = std::vector<int64_t>;

struct Row {
  Ids tokens, targets;
};

Row fill(const Dataset& dataset, int64_t index, int64_t length) {
  Row row{Ids(length), Ids(length)};
  dataset.fill(index, row.tokens, row.targets);
  return row;
}

int64_t trained_targets(const Dataset& dataset, int64_t index) {
  const Ids targets = fill(dataset, index, dataset.length(index)).targets;
  return std::ssize(targets) - std::count(targets.begin(), targets.end(), kIgnoreIndex);
}

// BOS in front: prefix {0}, end of text 1.
const Tokenizer& llama() {
  static const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  return tokenizer;
}

std::unique_ptr<Dataset> open(const std::filesystem::path& path, int64_t seq_len,
                              const Tokenizer& tokenizer = llama()) {
  return open_dataset({.path = path,
                       .tokenizer = &tokenizer,
                       .seq_len = seq_len,
                       .vocab_size = tokenizer.vocab_size()});
}

Ids wide(const std::vector<int32_t>& ids) {
  return {ids.begin(), ids.end()};
}

Ids operator+(Ids left, const Ids& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

void check_line_error(std::string_view content, const char* part) {
  TempFolder directory;
  const auto path = directory.write("t.jsonl", content);
  check_contains(error_of([&] { open(path, 64); }), part);
}

}  // namespace

TEST_CASE(
    "A prompt and its completion are joined, and only the completion and the end are trained") {
  TempFolder directory;
  const auto path =
      directory.write("t.jsonl", R"({"prompt": "the fox", "completion": " jumps", "other": 1})");
  const Ids prompt = Ids{0} + wide(llama().encode("the fox"));
  const Ids answer = wide(llama().encode(" jumps")) + Ids{1};
  const Ids all = prompt + answer;
  const auto dataset = open(path, 64);
  REQUIRE(dataset->size() == 1);
  CHECK(dataset->length(0) == std::ssize(all) - 1);
  CHECK(trained_targets(*dataset, 0) == std::ssize(answer));
  const Row row = fill(*dataset, 0, std::ssize(all) + 2);
  CHECK(row.tokens == Ids(all.begin(), all.end() - 1) + Ids{1, 1, 1});
  CHECK(row.targets == Ids(prompt.size() - 1, kIgnoreIndex) + answer + Ids(3, kIgnoreIndex));
}

TEST_CASE("A text is trained whole") {
  TempFolder directory;
  const auto dataset = open(directory.write("t.jsonl", R"({"text": "the fox"})"), 64);
  const Ids all = Ids{0} + wide(llama().encode("the fox")) + Ids{1};
  const Row row = fill(*dataset, 0, dataset->length(0));
  CHECK(row.tokens == Ids(all.begin(), all.end() - 1));
  CHECK(row.targets == Ids(all.begin() + 1, all.end()));
}

TEST_CASE("A template that ends with the end of text does not double it") {
  TempFolder directory;
  const Tokenizer spaced =
      Tokenizer::load(fixture("prefix_space"));  // <s> $A </s>, the latter ends a text
  const auto dataset = open(directory.write("t.jsonl", R"({"text": "fox"})"), 64, spaced);
  const Ids all = Ids{0} + wide(spaced.encode("fox")) + Ids{1};
  CHECK(fill(*dataset, 0, dataset->length(0)).targets == Ids(all.begin() + 1, all.end()));
}

TEST_CASE("Named fields are used, and they go together") {
  TempFolder directory;
  DatasetOptions options{
      .path = directory.write("t.jsonl", R"({"text": "x", "q": "the", "a": "fox"})"),
      .tokenizer = &llama(),
      .seq_len = 64,
      .vocab_size = llama().vocab_size(),
      .records = {.prompt_field = "q"}};
  check_contains(error_of([&] { open_dataset(options); }), "must be given together");
  options.records.completion_field = "a";
  const auto answer = std::ssize(llama().encode("fox"));
  CHECK(trained_targets(*open_dataset(options), 0) == answer + 1);
  options.records.completion_field = "b";
  check_contains(error_of([&] { open_dataset(options); }), "t.jsonl:1: no field 'b'");
}

TEST_CASE(
    "Long samples are cut at the end, those without a completion left are dropped, both are "
    "counted") {
  TempFolder directory;
  const auto path = directory.write("t.jsonl",
                                    R"({"prompt": "12", "completion": "3456789012"}
{"prompt": "123456789012", "completion": "34"}
{"prompt": "1", "completion": ""}
)");
  const Tokenizer gpt2 = Tokenizer::load(fixture("gpt2"));
  const int64_t prompt = std::ssize(gpt2.encode("12"));
  const auto dataset = open(path, prompt + 1, gpt2);
  CHECK(dataset->stats().samples == 2);
  CHECK(dataset->stats().truncated == 1);
  CHECK(dataset->stats().cut_labels == 1);
  CHECK(dataset->stats().dropped == 1);
  const auto positions = [&](const char* pair) { return std::ssize(gpt2.encode(pair)); };
  CHECK(dataset->stats().lost_tokens == positions("12") + positions("3456789012") -
                                            (prompt + 1) +  // each with an end of text
                                            positions("123456789012") + positions("34"));
  CHECK(dataset->length(0) == prompt + 1);
  CHECK(trained_targets(*dataset, 0) == 2);
  CHECK(dataset->stats().num_label_tokens == 3);
  CHECK(dataset->sample_name(0) == path.string() + ":1");
  CHECK(dataset->sample_name(1) == path.string() + ":3");
  const Row row = fill(*dataset, 1, prompt + 1);
  CHECK(row.targets.at(0) == 0);  // the end of text is trained, padding of the same id is not
  CHECK(row.targets.back() == kIgnoreIndex);
}

TEST_CASE("A sample that fits the window to the last id is not cut") {
  TempFolder directory;
  const auto path = directory.write("t.jsonl", R"({"text": "the fox"})");
  const int64_t ids = std::ssize(llama().encode("the fox")) + 2;
  CHECK(open(path, ids - 1)->stats().truncated == 0);
  CHECK(open(path, ids - 2)->stats().truncated == 1);
}

TEST_CASE("blank_line: what other readers let pass passes here, and messages keep the line") {
  TempFolder directory;
  const auto open_text = [&](std::string_view content) {
    return open(directory.write("t.jsonl", content), 8);
  };
  CHECK(open_text("{\"text\": \"a\"}\r\n{\"text\": \"b\"}\r\n\n  \n")->size() == 2);
  const auto between = open_text("{\"text\": \"a\"}\n\n{\"text\": \"b\"}\n \t\n{\"text\": \"c\"}");
  CHECK(between->size() == 3);
  CHECK(between->stats().blank_lines == 2);
  CHECK(between->sample_name(2).ends_with("t.jsonl:5"));
  const auto marked = open_text("\xef\xbb\xbf{\"text\": \"a\"}\r\n{\"text\": \"b\"}");
  CHECK(marked->size() == 2);
  CHECK(marked->stats().blank_lines == 0);
  // Two files that were put together, both with a mark.
  CHECK(open_text("\xef\xbb\xbf{\"text\": \"a\"}\n\xef\xbb\xbf{\"text\": \"b\"}\n")->size() == 2);
  check_line_error("\n\n{\"text\": \"a\"}\n\n{\"text\": 5}", "t.jsonl:5: field 'text'");
}

TEST_CASE("double_bos: a pair has one begin and one end token, where its parts bring them") {
  TempFolder directory;
  const std::string begin(llama().id_to_token(0)), end(llama().id_to_token(1));
  const auto rows = [&](const std::string& prompt, const std::string& completion) {
    const auto dataset =
        open(directory.write("t.jsonl", "{\"prompt\": \"" + prompt + "\", \"completion\": \"" +
                                            completion + "\"}"),
             64);
    return fill(*dataset, 0, dataset->length(0));
  };
  const Row plain = rows("the fox", " jumps");
  const std::pair<std::string, std::string> ready[] = {{begin + "the fox", " jumps"},
                                                       {"the fox", " jumps" + end},
                                                       {begin + "the fox", " jumps" + end}};
  for (const auto& [prompt, completion] : ready) {
    CHECK(rows(prompt, completion).tokens == plain.tokens);
    CHECK(rows(prompt, completion).targets == plain.targets);
  }
  // The end of a prompt ends no sample.
  const Row ended = rows("the fox" + end, "");
  CHECK(ended.targets.back() == 1);
  CHECK(ended.tokens.back() == 1);
  const auto counted =
      open(directory.write("t.jsonl", "{\"prompt\": \"" + begin +
                                          "a\", \"completion\": \"b\"}\n{\"prompt\": "
                                          "\"a\", \"completion\": \"b\"}"),
           64);
  CHECK(counted->stats().own_special_tokens ==
        "of 2 texts, 1 begin with the begin token " + begin + ": no second one is added to these");
}

TEST_CASE("A .json file holds records in an array, or one after the other, named by their lines") {
  TempFolder directory;
  const auto named = [&](std::string_view content) {
    return open(directory.write("t.json", content), 8)->sample_name(1);
  };
  const std::string path = (directory / "t.json").string();
  CHECK(named("[{\"text\": \"a\"},\n {\"text\": \"b\"}]") == path + ":2");
  CHECK(named("{\"data\": [\n{\"text\": \"a\"},\n {\"text\": \"b\"}]}") == path + ":3");
  CHECK(named("{\"text\": \"a\"}\n{\"text\": \"b\"}\n") == path + ":2");
  check_contains(error_of([&] { named("[{\"text\": \"a\"},\n{\"text\": 1}]"); }),
                 "t.json:2: field 'text' is a number, not a string");
  check_contains(error_of([&] { named("[{\"text\": \"a\"},\n{\"text\": x}]"); }), "t.json:2:10: ");
}

TEST_CASE("A pair under usual names is trained as prompt and completion, and that is said") {
  TempFolder directory;
  const auto dataset =
      open(directory.write("t.jsonl", R"({"question": "the", "answer": "fox"})"), 64);
  CHECK(trained_targets(*dataset, 0) == std::ssize(llama().encode("fox")) + 1);
  CHECK(dataset->stats().pairs);
  CHECK_FALSE(dataset->stats().named_fields);
  CHECK(dataset->stats().joint_example == "the\\nfox");
  CHECK(dataset->stats().fields == "question|\n|answer");
  CHECK_FALSE(open(directory.write("t.jsonl", R"({"text": "fox"})"), 64)->stats().pairs);
}

TEST_CASE("A bad line is an Error with file, line and reason") {
  check_line_error("{\"text\": \"a\"}\n{\"text\": \"b\"\n",
                   "t.jsonl:2:12: text: not JSON: it ends here, expected ',' or '}'");
  check_line_error("{\"text\": \"a\"}\n{\"txt\": \"b\"}", "t.jsonl:2: no field 'text'");
  check_line_error("{\"text\": 5}", "t.jsonl:1: field 'text' is a number, not a string");
  check_line_error("[1]", "t.jsonl:1: a JSON array, not an object; name a file with one array");
  check_line_error("{\"text\": \"\xff\"}",
                   "t.jsonl:1:11: text: not JSON: bytes that are not UTF-8");
  check_line_error("{\"text\": []}", "t.jsonl:1: field 'text' is an array, not a string");
  check_line_error("{\"text\": null}", "t.jsonl:1: field 'text' is null, not a string");
  check_line_error("{\"question\": \"a\"}", "t.jsonl:1: neither 'text' nor");
  check_line_error("{\"messages\": []}", "t.jsonl:1: ");
}

TEST_CASE("A line that is not JSON has its line and its column") {
  check_line_error("{\"text\": \"a\"}\n{x\n",
                   "t.jsonl:2:2: not JSON: unexpected 'x', expected a key or '}'");
}

TEST_CASE("A text beside a prompt and a completion is an Error that asks for the fields") {
  check_line_error(R"({"text": "a", "prompt": "b", "completion": "c"})",
                   "t.jsonl:1: both 'text' and 'prompt' with 'completion': name the pair with "
                   "--prompt-field and --completion-field");
}

TEST_CASE("A key that is twice in one object is an Error, in two objects it is not") {
  check_line_error("{\"text\": \"a\"}\n{\"text\": \"a\", \"text\": \"b\"}",
                   "t.jsonl:2: duplicate key text in one object");
  TempFolder directory;
  CHECK(open(directory.write("t.jsonl", R"({"text": "a", "meta": [{"text": 1}, {"text": 2}]})"), 8)
            ->size() == 1);
}

TEST_CASE("A file without a sample to train is an Error") {
  check_line_error("", "t.jsonl has no records");
  check_line_error("\n  \n", "t.jsonl has no records");
  TempFolder directory;
  const auto path = directory.write("t.jsonl", R"({"prompt": "123456", "completion": "1"})");
  check_contains(error_of([&] { open(path, 1); }), "1 dropped");
}

TEST_CASE("A tokenizer that is larger than the model is an Error where it shows") {
  TempFolder directory;
  const auto path = directory.write("t.jsonl", R"({"text": "a"})");
  check_contains(
      error_of([&] {
        open_dataset({.path = path, .tokenizer = &llama(), .seq_len = 8, .vocab_size = 2});
      }),
      "the model's vocabulary has 2 ids");
}

TEST_CASE(
    "A newline separates fields of any names but prompt and completion, unless one is given") {
  TempFolder directory;
  DatasetOptions options{.path = directory / "t.jsonl",
                         .tokenizer = &llama(),
                         .seq_len = 64,
                         .vocab_size = llama().vocab_size()};
  const auto joint_example = [&](const char* record) {
    options.path = directory.write("t.jsonl", record);
    const auto dataset = open_dataset(options);
    return dataset->stats().joint_example;
  };
  constexpr const char* kPair = R"({"prompt": "in May?", "completion": "Natalia"})";
  constexpr const char* kOther = R"({"question": "in May?", "answer": "Natalia"})";
  CHECK(joint_example(kPair) == "in May?Natalia");  // TRL's format
  CHECK(joint_example(kOther) == "in May?\\nNatalia");
  options.records.separator = "";
  CHECK(joint_example(kOther) == "in May?Natalia");
  options.records.separator = " => ";
  CHECK(joint_example(kPair) == "in May? => Natalia");
  options.records.separator.reset();
  options.records.prompt_field = "question";
  options.records.completion_field = "answer";
  CHECK(joint_example(kOther) == "in May?\\nNatalia");
  options.version = 1;
  CHECK(joint_example(kOther) == "in May?Natalia");
  CHECK(
      joint_example(
          R"({"question": "\u00e9\u00e9\u00e9\u00e9\u00e9 twelve letters", "answer": "0123456789abcdefghij"})") ==
      "\u00e9 twelve letters0123456789abcdef");
}

TEST_CASE("A separator belongs to the prompt, as if it stood in the file") {
  TempFolder directory;
  const auto plain =
      directory.write("plain.jsonl", R"({"prompt": "the fox\nA:", "completion": " jumps"})");
  const auto pair =
      directory.write("pair.jsonl", R"({"prompt": "the fox", "completion": " jumps"})");
  const auto separated = open_dataset({.path = pair,
                                       .tokenizer = &llama(),
                                       .seq_len = 64,
                                       .vocab_size = llama().vocab_size(),
                                       .records = {.separator = "\nA:"}});
  const auto expected = open(plain, 64);
  CHECK(fill(*separated, 0, 64).tokens == fill(*expected, 0, 64).tokens);
  CHECK(fill(*separated, 0, 64).targets == fill(*expected, 0, 64).targets);
  const auto texts = directory.write("text.jsonl", R"({"text": "the fox"})");
  check_contains(error_of([&] {
                   open_dataset({.path = texts,
                                 .tokenizer = &llama(),
                                 .seq_len = 64,
                                 .vocab_size = llama().vocab_size(),
                                 .records = {.separator = "x"}});
                 }),
                 "--separator goes between prompt and completion");
}

TEST_CASE("--on-long: a record that is too long is cut, dropped, split or an Error") {
  TempFolder directory;
  const auto path = directory.write(
      "t.jsonl",
      "{\"text\": \"the fox\"}\n{\"text\": \"the quick brown fox jumps over the lazy dog\"}\n");
  const int64_t all = std::ssize(llama().encode("the quick brown fox jumps over the lazy dog")) + 1;
  const int64_t seq_len = 6;
  REQUIRE(all > 2 * seq_len);
  const auto with = [&](OnLong on_long) {
    return open_dataset({.path = path,
                         .tokenizer = &llama(),
                         .seq_len = seq_len,
                         .vocab_size = llama().vocab_size(),
                         .on_long = on_long});
  };
  const auto cut = with(OnLong::kCut);
  CHECK(cut->size() == 2);
  CHECK(cut->stats().truncated == 1);
  CHECK(cut->stats().lost_tokens == all - seq_len);
  const auto dropped = with(OnLong::kDrop);
  CHECK(dropped->size() == 1);
  CHECK(dropped->stats().too_long == 1);
  CHECK(dropped->stats().lost_tokens == all);
  const auto split = with(OnLong::kSplit);
  CHECK(split->size() == 1 + (all + seq_len - 1) / seq_len);
  CHECK(split->stats().split == 1);
  CHECK(split->stats().lost_tokens == 0);
  CHECK(split->sample_name(2) == path.string() + ":2");
  Ids targets;  // each is trained once
  for (int64_t i = 1; i < split->size(); ++i)
    targets = targets + fill(*split, i, split->length(i)).targets;
  CHECK(targets == wide(llama().encode("the quick brown fox jumps over the lazy dog")) + Ids{1});
  check_contains(error_of([&] { with(OnLong::kFail); }),
                 fmt::format("t.jsonl:2: {} positions, but --seq-len is 6: --on-long cut, drop or "
                             "split uses the file",
                             all));
}

}  // namespace zeroth::data::jsonl_samples_test
