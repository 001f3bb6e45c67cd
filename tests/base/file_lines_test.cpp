#include "base/files/regular_file.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::file_lines_test {
namespace {

// "text@begin-end", and "?" behind one that lacks its end.
std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  for_each_line(path, [&](const FileLine& line) {
    lines.push_back(
        fmt::format("{}@{}-{}{}", line.text, line.begin, line.end, line.whole ? "" : "?"));
  });
  return lines;
}

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("lines are told with their places, and the last one with whether it has an end") {
  const TempFolder directory;
  CHECK(lines_of(directory.write("a", "one\n\nthree\n")) ==
        Strings{"one@0-4", "@4-5", "three@5-11"});
  CHECK(lines_of(directory.write("b", "one\ntw")) == Strings{"one@0-4", "tw@4-6?"});
  CHECK(lines_of(directory.write("c", "a\r\nb\r")) == Strings{"a@0-3", "b\r@3-5?"});
  CHECK(lines_of(directory.write("d", "")).empty());
  CHECK(lines_of(directory.write("e", "\n")) == Strings{"@0-1"});
}

TEST_CASE(
    "lines that lie across the parts in which a file is read are whole, long ones shown cut") {
  const TempFolder directory;
  const std::string row = "a row of thirty-one characters.";
  std::string text;
  while (text.size() < (size_t{3} << 20)) text += row + "\n";
  size_t same = 0;
  for_each_line(directory.write("rows", text), [&](const FileLine& line) {
    same += line.text == row && line.end - line.begin == 32 ? 1 : 0;
  });
  CHECK(same == text.size() / 32);
  const std::string wide(size_t{5} << 20, 'x');
  std::vector<FileLine> seen;
  for_each_line(directory.write("wide", wide + "\nend"), [&](const FileLine& line) {
    seen.push_back({.text = {}, .begin = line.begin, .end = line.end, .whole = line.whole});
    CHECK(line.text.size() == (line.begin == 0 ? kMaxLineBytes : 3));
  });
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].end == std::ssize(wide) + 1);
  CHECK(seen[0].whole);
  CHECK_FALSE(seen[1].whole);
}

TEST_CASE("a file is cut where it is told, also through a link") {
  const TempFolder directory;
  const auto path = directory.write("a", "one\ntwo\n");
  std::filesystem::create_symlink(path, directory / "link");
  truncate_file(directory / "link", 4);
  CHECK(read_text(path) == "one\n");
  CHECK(std::filesystem::is_symlink(directory / "link"));
}

TEST_CASE("what cannot be looked through or cut is named with the reason") {
  const TempFolder directory;
  CHECK(message_of<Error>([&] { lines_of(directory / "none"); }) ==
        "cannot open " + (directory / "none").string() + ": No such file or directory");
  CHECK(message_of<Error>([&] { lines_of(directory.path()); }) ==
        directory.path().string() + " is a folder, expected a file");
  CHECK(message_of<Error>([&] { truncate_file(directory / "none", 0); }) ==
        (directory / "none").string() + " cannot be truncated: No such file or directory");
}

}  // namespace zeroth::file_lines_test
