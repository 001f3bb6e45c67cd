#include "base/mapped_file.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth {

TEST_CASE("a file is seen as text, as bytes and as numbers") {
  const TempFolder folder;
  write_text(folder.path() / "n", std::string("\x01\x00\x03\x02", 4));
  const MappedFile file(folder.path() / "n");
  CHECK(file.size() == 4);
  CHECK(file.as<uint16_t>()[1] == 515);
  CHECK(file.text().substr(2, 2) == "\x03\x02");
  CHECK(file.bytes()[0] == std::byte{1});
}

TEST_CASE("an empty file is empty memory") {
  const TempFolder folder;
  write_text(folder.path() / "empty", "");
  const MappedFile file(folder.path() / "empty");
  CHECK(file.size() == 0);
  CHECK(file.text().empty());
}

TEST_CASE("a moved mapping stays where it is") {
  const TempFolder folder;
  write_text(folder.path() / "a", "abc");
  MappedFile first(folder.path() / "a");
  const MappedFile second(std::move(first));
  CHECK(second.text() == "abc");
}

TEST_CASE("forgotten pages are read again when they are touched") {
  const TempFolder folder;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  write_text(folder.path() / "x", std::string(3 * page + 5, 'z'));
  const MappedFile file(folder.path() / "x");
  const auto bytes = file.bytes();
  CHECK(bytes[2 * page] == std::byte{'z'});
  file.forget(bytes.subspan(1));
  CHECK(bytes[2 * page] == std::byte{'z'});
  CHECK(bytes.back() == std::byte{'z'});
}

TEST_CASE("a missing file and a folder are errors with the path and the reason") {
  const TempFolder folder;
  CHECK_THROWS_WITH_AS(MappedFile("/nowhere/x"),
                       "cannot open /nowhere/x: No such file or directory", Error);
  CHECK_THROWS_WITH_AS(MappedFile{folder.path()}, doctest::Contains("is a folder, expected a file"),
                       Error);
}

}  // namespace zeroth
