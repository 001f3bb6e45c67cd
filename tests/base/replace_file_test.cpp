#include "base/replace_file.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a file is replaced whole, and nothing stays beside it") {
  const TempFolder folder;
  replace_file(folder / "a.json", "first");
  replace_file(folder / "a.json", "the second");
  CHECK(text_of(folder / "a.json") == "the second");
  CHECK_FALSE(std::filesystem::exists(folder / "a.json.part"));
}

TEST_CASE("a link in the place of a file is replaced, not followed") {
  const TempFolder folder;
  replace_file(folder / "others", "theirs");
  for (const char* name : {"a.json", "a.json.part"}) {
    std::filesystem::create_symlink(folder / "others", folder / name);
  }
  replace_file(folder / "a.json", "mine");
  CHECK(text_of(folder / "others") == "theirs");
  CHECK(text_of(folder / "a.json") == "mine");
  CHECK_FALSE(std::filesystem::is_symlink(folder / "a.json"));
}

TEST_CASE("a file that cannot be written is named with the reason") {
  const TempFolder folder;
  CHECK_THROWS_WITH_AS(
      replace_file(folder / "none/a.json", ""),
      doctest::Contains("none/a.json cannot be written: No such file or directory"), Error);
}

}  // namespace zeroth
