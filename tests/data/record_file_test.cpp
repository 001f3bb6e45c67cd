#include "data/records/record_source.h"

#include <vector>

#include "tests/data/data_test_support.h"

namespace zeroth::data::record_file_test {
namespace {

using Record = std::pair<std::string, int64_t>;

std::vector<Record> elements(std::string_view file) {
  std::vector<Record> records;
  for_each_element(file, "t.json", [&](const RawRecord& record) {
    records.emplace_back(record.text, record.line);
    return true;
  });
  return records;
}

}  // namespace

TEST_CASE("The elements of an array come as they stand there, with their lines") {
  CHECK(elements("[]").empty());
  CHECK(elements(" \n[ {\"a\": [1, {}]} ,\n\n {\"b\": \"]\\\"}\"},true,-1.5e3 ]\n") ==
        std::vector<Record>{
            {"{\"a\": [1, {}]}", 2}, {"{\"b\": \"]\\\"}\"}", 4}, {"true", 4}, {"-1.5e3", 4}});
  CHECK(elements("\xef\xbb\xbf[\"x\"]") == std::vector<Record>{{"\"x\"", 1}});
}

TEST_CASE("An object around the array may have other keys") {
  const std::vector<Record> two = {{"{\"a\": 1}", 3}, {"{\"a\": 2}", 3}};
  CHECK(elements(
            "{\"version\": {\"data\": [0]},\n \"data\":\n [{\"a\": 1}, {\"a\": 2}], \"n\": 2}") ==
        two);
  CHECK(elements("{\"data\": 3}") == std::vector<Record>{{"{\"data\": 3}", 1}});
}

TEST_CASE("Values one after the other are records too, also over several lines") {
  CHECK(elements("{\"a\":\n1}\n{\"data\": [1]}\n") ==
        std::vector<Record>{{"{\"a\":\n1}", 1}, {"{\"data\": [1]}", 3}});
  CHECK(elements("").empty());
  CHECK(elements(" \n ").empty());
}

TEST_CASE("An array that does not go on or end is an Error with its line") {
  const std::pair<const char*, const char*> cases[] = {
      {"[1,\n2", "t.json:2: expected ',' or ']' after a record"},
      {"[1\n\n2]", "t.json:3: expected ',' or ']' after a record"},
      {"[1,]", "t.json:1: expected a record"},
      {"[", "t.json:1: expected a record"},
      {"[1]\n[2]", "t.json:2: expected nothing after the array"},
      {"}", "t.json:1: expected a record"},
      {"{\"data\": [1 2]}", "t.json:1: expected ',' or ']' after a record"}};
  for (const auto& [file, message] : cases) {
    CHECK(error_of([&, text = file] { elements(text); }) == message);
  }
  CHECK(error_of([] { elements(std::string_view("[1]\0[2]", 7)); }) ==
        "t.json:1: expected nothing after the array");
}

TEST_CASE("What is cut short is a record to the end, for its reader to refuse") {
  CHECK(elements("{\"a\": \"x") == std::vector<Record>{{"{\"a\": \"x", 1}});
  CHECK(elements("{\"a\": \"x\\") == std::vector<Record>{{"{\"a\": \"x\\", 1}});
}

TEST_CASE(
    "blank_line: lines of blanks are passed over and counted, and others keep their numbers") {
  TempFolder directory;
  const auto lines = [&](std::string_view file) {
    std::vector<Record> records;
    ByteSource source(directory.write("t.jsonl", file));
    const int64_t blank = for_each_line(source, [&](const RawRecord& record) {
      records.emplace_back(record.text, record.line);
      return true;
    });
    return std::pair(records, blank);
  };
  CHECK(lines("a\n\nb\r\n \n") == std::pair(std::vector<Record>{{"a", 1}, {"b\r", 3}}, int64_t{2}));
  CHECK(lines("\n\t\r\na") == std::pair(std::vector<Record>{{"a", 3}}, int64_t{2}));
  CHECK(lines("\xef\xbb\xbf"
              "a\nb\n") == std::pair(std::vector<Record>{{"a", 1}, {"b", 2}}, int64_t{0}));
  CHECK(lines("\xef\xbb\xbf\na\n\xef\xbb\xbf  \n") ==
        std::pair(std::vector<Record>{{"a", 2}}, int64_t{2}));
  CHECK(lines("").first.empty());
  CHECK(lines("\n \n").second == 2);
}

TEST_CASE("Lines that a piece of the file cuts are whole, and a line has a limit") {
  TempFolder directory;
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += fmt::format("line {}\n", i);
  const auto path = directory.write("t.jsonl", text);
  ByteSource source(path);
  int64_t count = 0;
  for_each_line(source, [&](const RawRecord& record) {
    CHECK(record.text == fmt::format("line {}", count));
    CHECK(record.line == ++count);
    return true;
  });
  CHECK(count == 300'000);
  ByteSource long_line(directory.write("t.jsonl", "a\n" + std::string(3'000'000, 'x')));
  check_contains(error_of([&] {
                   for_each_line(
                       long_line, [](const RawRecord&) { return true; }, 2'000'000);
                 }),
                 "t.jsonl:2: the line has more than 1.91 MiB");
}

}  // namespace zeroth::data::record_file_test
