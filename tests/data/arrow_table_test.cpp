// Tables of Apache Arrow, by the library that arrow_loader.h loads.
#include "tests/data/container_test_support.h"

namespace zeroth::data::arrow_table_test {
namespace {

std::string error_in(const std::filesystem::path& path) {
  const std::string error = error_of([&] { read_records_of(path); });
  return error.substr(error.find(path.filename().string()));
}

}  // namespace

TEST_CASE("Tables have the records of the .jsonl file, and their rows are numbered") {
  if (!has_arrow()) return;
  const Records expected = read_records_of(container("text.jsonl"));
  for (const char* const name : {"text.parquet", "text.arrow", "text.file.arrow"}) {
    INFO(name);
    const Records read = read_records_of(container(name));
    CHECK(read.values == expected.values);
    CHECK(read.lines == expected.lines);
    CHECK(read_records_of(container(name), 3).values.size() == 3);
  }
}

TEST_CASE("Every type of columns that JSON can hold is read") {
  if (!has_arrow()) return;
  const Records expected = read_records_of(container("types.jsonl"));
  for (const char* const name : {"types.parquet", "types.arrow", "types.file.arrow"}) {
    INFO(name);
    const Records read = read_records_of(container(name));
    REQUIRE(read.values.size() == 2);
    for (size_t row = 0; row < 2; ++row) {
      for (const auto& [column, value] : expected.values[row].items()) {
        INFO(column);
        INFO(read.values[row][column].dump());
        CHECK(read.values[row][column] == value);
        CHECK(read.values[row][column].is_number_float() == value.is_number_float());
      }
    }
  }
}

TEST_CASE("A table is known by its first bytes, without an extension as in Hugging Face's cache") {
  if (!has_arrow()) return;
  TempFolder directory;
  for (const char* const name : {"text.parquet", "text.arrow", "text.file.arrow"}) {
    const auto blob = directory.write("5f8a", read_text(container(name)));
    CHECK(read_records_of(blob).values.size() == 5);
  }
}

TEST_CASE("Progress of a table ends with all bytes") {
  if (!has_arrow()) return;
  for (const char* const name : {"text.parquet", "text.arrow", "text.file.arrow"}) {
    INFO(name);
    const auto size = static_cast<int64_t>(std::filesystem::file_size(container(name)));
    int64_t last = 0;
    const auto on_read = [&](int64_t done, int64_t bytes) {
      CHECK(bytes == size);
      CHECK(done >= last);
      last = done;
    };
    for_each_record({.path = container(name), .on_read = on_read},
                    [](const RawRecord&) { return true; });
    CHECK(last == size);
  }
}

TEST_CASE("A column that JSON cannot hold is refused by its name") {
  if (!has_arrow()) return;
  check_contains(error_in(container("binary.parquet")),
                 "binary.parquet: column 'image' has the type struct<");
  check_contains(error_in(container("binary.parquet")),
                 "for which JSON has no value: leave it out");
  check_contains(error_in(container("number_keys.arrow")), ": column 'map' has the type map<int64");
  check_contains(error_in(container("two_names.arrow")), ": two columns have the name 'text'");
  check_contains(error_in(container("bad_json.arrow")), "bad_json.arrow:2: column 'text': ");
}

TEST_CASE("A damaged table is refused with Arrow's reason") {
  if (!has_arrow()) return;
  check_contains(error_in(container("not_utf8.arrow")), "cannot be read as Arrow: \"");
  TempFolder directory;
  const auto cut = [&](const char* name, size_t bytes) {
    std::string whole = read_text(container(name));
    return error_in(directory.write(name, whole.substr(0, whole.size() - bytes)));
  };
  check_contains(cut("text.parquet", 20), "text.parquet cannot be read as Parquet: \"");
  check_contains(cut("text.file.arrow", 20), "text.file.arrow cannot be read as Arrow: \"");
  check_contains(cut("text.arrow", 100), "text.arrow cannot be read as Arrow: \"");
  std::string noisy = read_text(container("text.parquet"));
  for (size_t i = 4; i < 100; ++i) noisy[i] = static_cast<char>(noisy[i] ^ 0x5a);
  check_contains(error_in(directory.write("noisy.parquet", noisy)),
                 "cannot be read as Parquet: \"");
}

}  // namespace zeroth::data::arrow_table_test
