#include "base/files/replace_file.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::replace_file_test {

TEST_CASE("a file is replaced whole, and nothing stays beside it") {
  const TempFolder directory;
  replace_file(directory / "a.json", "first");
  replace_file(directory / "a.json", "the second");
  CHECK(read_text(directory / "a.json") == "the second");
  CHECK_FALSE(std::filesystem::exists(directory / "a.json.part"));
}

TEST_CASE("a link in the place of a file is replaced, not followed") {
  const TempFolder directory;
  replace_file(directory / "others", "theirs");
  for (const char* name : {"a.json", "a.json.part"}) {
    std::filesystem::create_symlink(directory / "others", directory / name);
  }
  replace_file(directory / "a.json", "mine");
  CHECK(read_text(directory / "others") == "theirs");
  CHECK(read_text(directory / "a.json") == "mine");
  CHECK_FALSE(std::filesystem::is_symlink(directory / "a.json"));
}

TEST_CASE("who may no longer write leaves a file as it is, whatever was written by then") {
  const TempFolder directory;
  replace_file(directory / "a.json", "of the next round");
  const auto guard = [&] {
    if (!std::filesystem::exists(directory / "a.json.part")) return;
    CHECK(read_text(directory / "a.json.part") == "late");  // only the name is missing
    throw OutputTakenOver("taken over");
  };
  CHECK_THROWS_AS(replace_file(directory / "a.json", "late", guard), OutputTakenOver);
  CHECK(read_text(directory / "a.json") == "of the next round");
  CHECK_FALSE(std::filesystem::exists(directory / "a.json.part"));
}

TEST_CASE("who may no longer write leaves alone what the next one is writing") {
  const TempFolder directory;
  const auto of_next = [&] {
    std::filesystem::remove(directory / "a.json.part");
    std::ofstream(directory / "a.json.part") << "of the next round";
  };
  for (const int last : {1, 2}) {  // the question before anything is made, the one before the name
    int asked = 0;
    const auto guard = [&] {
      if (++asked < last) return;
      of_next();
      throw OutputTakenOver("taken over");
    };
    CHECK_THROWS_AS(replace_file(directory / "a.json", "late", guard), OutputTakenOver);
    CHECK(asked == last);
    CHECK(read_text(directory / "a.json.part") == "of the next round");
    std::filesystem::remove(directory / "a.json.part");
  }
}

TEST_CASE("a file that cannot be written is named with the reason") {
  const TempFolder directory;
  CHECK_THROWS_WITH_AS(
      replace_file(directory / "none/a.json", ""),
      doctest::Contains("none/a.json cannot be written: No such file or directory"), Error);
}

}  // namespace zeroth::replace_file_test
