#include "data/records/record_source.h"

#include "tests/data/container_test_support.h"

namespace zeroth::data::record_source_test {
namespace {

const char* const kTexts[] = {"text.jsonl",       "text.json",        "text.json.gz",
                              "text.jsonl.gz",    "members.jsonl.gz", "text.jsonl.zst",
                              "frames.jsonl.zst", "text.csv",         "text.csv.zst"};

}  // namespace

TEST_CASE("Every container of texts has the records of the .jsonl file") {
  const Records expected = read_records_of(container("text.jsonl"));
  CHECK(expected.values.size() == 5);
  CHECK(expected.lines == std::vector<int64_t>{1, 2, 3, 4, 5});
  for (const char* const name : kTexts) {
    INFO(name);
    CHECK(read_records_of(container(name)).values == expected.values);
  }
}

TEST_CASE("A reader that wants no more records gets none, and no error behind them") {
  const Records all = read_records_of(container("text.jsonl"));
  for (const char* const name : kTexts) {
    INFO(name);
    const Records two = read_records_of(container(name), 2);
    CHECK(two.values == std::vector(all.values.begin(), all.values.begin() + 2));
  }
  TempFolder directory;
  for (const auto& [name, text] : {std::pair("a.json", "[{\"a\": 1}, {\"a\": 2} no"),
                                   {"a.json", "{\"a\": 1} {\"a\": 2}} no"},
                                   {"a.jsonl", "{\"a\": 1}\n{\"a\": 2}\nno"},
                                   {"a.csv", "a\n1\n2\n3,4\n"}}) {
    INFO(text);
    CHECK(read_records_of(directory.write(name, text), 2).values.size() == 2);
  }
}

TEST_CASE("Rows of a .csv file have their lines, and blank lines are counted") {
  TempFolder directory;
  const auto path = directory.write("t.csv", "a,b\r\n\r\n1,\"x\ny\"\r\n2,\n");
  CHECK(read_records_of(path).lines == std::vector<int64_t>{3, 5});
  CHECK(for_each_record({.path = path}, [](const RawRecord&) { return true; }) == 1);
}

TEST_CASE("Progress is in bytes of the file as it is stored") {
  for (const char* const name : kTexts) {
    INFO(name);
    const auto size = static_cast<int64_t>(std::filesystem::file_size(container(name)));
    int64_t calls = 0, last = 0;
    const auto on_read = [&](int64_t done, int64_t bytes) {
      CHECK(bytes == size);
      CHECK(done >= last);
      CHECK(done <= size);
      last = done;
      ++calls;
    };
    for_each_record({.path = container(name), .on_read = on_read},
                    [](const RawRecord&) { return true; });
    CHECK(calls == 5);
  }
}

TEST_CASE("A file that is not what its name says is refused before it is read") {
  TempFolder directory;
  const auto read = [&](const char* name, std::string_view bytes) {
    return error_of([&] { read_records_of(directory.write(name, bytes)); });
  };
  check_contains(read("t.jsonl.gz", "{\"a\": 1}"),
                 "t.jsonl.gz is not gzip: it begins with 7b 22 61 22 3a 20 31 7d, expected 1f 8b");
  check_contains(read("t.jsonl", "\x1f\x8b\x08"), "t.jsonl is compressed (gzip): rename it to");
}

TEST_CASE("A file of many megabytes stays in memory in part only") {
  TempFolder directory;
  const std::string record = "{\"text\": \"" + std::string(1'000, 'x') + "\"}";
  std::string lines, array = "[";
  for (int i = 0; i < 64'000; ++i) {
    lines += record + "\n";
    array += (i > 0 ? "," : "") + record;
  }
  const auto resident_kib = [] {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("RssFile:")) return std::stoll(line.substr(8));
    }
    return -1LL;
  };
  for (const auto& [name, text] : {std::pair("t.jsonl", lines),
                                   {"t.json", array + "]"},
                                   {"u.json", "{\"data\": " + array + "]}"}}) {
    INFO(name);
    const auto path = directory.write(name, text);
    const int64_t before = resident_kib();
    int64_t count = 0, peak = 0;
    for_each_record({.path = path}, [&](const RawRecord&) {
      if (++count % 1'000 == 0) peak = std::max<int64_t>(peak, resident_kib());
      return true;
    });
    CHECK(count == 64'000);
    CHECK(peak - before < 16 * 1024);
  }
}

TEST_CASE("A text comes in pieces, unpacked") {
  std::string text;
  const auto add = [&](std::string_view piece) {
    text += piece;
    return true;
  };
  for_each_block(container("plain.txt.gz"), add);
  CHECK(text == "one text\nof two lines");
  TempFolder directory;
  text.clear();
  const std::string large(3'000'000, 'y');
  for_each_block(directory.write("t.txt", large), add);
  CHECK(text == large);
  int calls = 0;
  for_each_block(directory / "t.txt", [&](std::string_view) { return ++calls < 2; });
  CHECK(calls == 2);
}

}  // namespace zeroth::data::record_source_test
