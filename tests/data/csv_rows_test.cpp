#include "tests/data/container_test_support.h"

namespace zeroth::data::csv_rows_test {
namespace {

using Json = nlohmann::ordered_json;

Records rows(const std::string& text) {
  TempFolder directory;
  return read_records_of(directory.write("t.csv", text));
}

// Without the folder's name.
std::string csv_error(const std::string& text) {
  const std::string error = error_of([&] { rows(text); });
  return error.substr(error.find("t.csv"));
}

}  // namespace

TEST_CASE("Rows become objects of texts, in the order of the header") {
  CHECK(rows("b,a\n1,x\n").values == std::vector<Json>{{{"b", "1"}, {"a", "x"}}});
  CHECK(rows("b,a\n1,x\n").values[0].dump() == R"({"b":"1","a":"x"})");
  CHECK(rows("a\nlast line").values == std::vector<Json>{{{"a", "last line"}}});
  CHECK(rows("a,b\n,\n").values == std::vector<Json>{{{"a", ""}, {"b", ""}}});
  CHECK(rows("a\n").values.empty());
  CHECK(rows("").values.empty());
}

TEST_CASE("Quotes hold commas, line ends and quotes") {
  CHECK(rows("a,b\n\"x,y\",\"p\r\nq\"\n\"say \"\"hi\"\"\",\"\"\n").values ==
        std::vector<Json>{{{"a", "x,y"}, {"b", "p\r\nq"}}, {{"a", "say \"hi\""}, {"b", ""}}});
  CHECK(rows("a\n\"\"\n").values == std::vector<Json>{{{"a", ""}}});
  CHECK(rows("a\n5\" pipe\n").values == std::vector<Json>{{{"a", "5\" pipe"}}});
  CHECK(rows("\"a,\"\n1\n").values == std::vector<Json>{{{"a,", "1"}}});
}

TEST_CASE("A byte order mark, and line ends of any system") {
  const std::vector<Json> expected = {{{"a", "1"}}, {{"a", "2"}}};
  for (const char* const text : {"\xef\xbb\xbf"
                                 "a\n1\n2\n",
                                 "a\r\n1\r\n2\r\n", "a\r1\r2", "a\n\n1\n2\n\n"}) {
    CHECK(rows(text).values == expected);
  }
  CHECK(rows("a\r\n1\r\n\r\n\"2\n2\"\r\n3").lines == std::vector<int64_t>{2, 4, 6});
}

TEST_CASE("Fields that a piece of the file cuts are whole") {
  std::string text = "a,b\n";
  for (int i = 0; i < 120'000; ++i) text += fmt::format("\"{0},\"\"\",{0}\r\n", i);
  const auto read = rows(text).values;  // 1,000 at most
  REQUIRE(read.size() == 1'000);
  TempFolder directory;
  int64_t count = 0;
  for_each_record({.path = directory.write("t.csv", text)}, [&](const RawRecord& record) {
    const std::string number = std::to_string(count);
    CHECK(*record.row == Json{{"a", number + ",\""}, {"b", number}});
    CHECK(record.line == ++count + 1);
    return true;
  });
  CHECK(count == 120'000);
}

TEST_CASE("What is no table is an Error with its line") {
  const std::pair<const char*, const char*> cases[] = {
      {"a,b\n1,2\n3\n", "t.csv:3: 1 field, but the header has 2"},
      {"a,b\n1,2,3\n", "t.csv:2: 3 fields, but the header has 2"},
      {"a\n1\n\"2\n3\n", "t.csv:3: a quote that begins here does not end"},
      {"\"a\n", "t.csv:1: a quote that begins here does not end"},
      {"a,b\n1,\"x\ny\" z\n", "t.csv:3: text after a closing quote: a quote inside quotes"},
      {"a,b,a\n", "t.csv:1: two columns have the name 'a'"},
      {"a,b\n1,2\n3,\xff\n", "t.csv:3: field 2 is not UTF-8 at its byte 0"}};
  for (const auto& [text, message] : cases) check_contains(csv_error(text), message);
}

TEST_CASE("A row has a limit, which a quote without an end reaches") {
  TempFolder directory;
  const auto limited = [&](const std::string& text) {
    ByteSource source(directory.write("t.csv", text));
    for_each_csv_row(
        source, [](const RawRecord&) { return true; }, 1'000);
  };
  const std::string row = std::string(500, 'x') + "\n";
  CHECK_NOTHROW(limited("a\n" + row + row + row));
  check_contains(error_of([&] { limited("a\n\"" + row + row + row); }),
                 "t.csv:2: the row has more than 1000 B; is a quote not closed?");
  check_contains(error_of([&] { limited("a\n" + std::string(100, ',')); }),
                 "t.csv:2: the row has more than 1000 B");
}

}  // namespace zeroth::data::csv_rows_test
