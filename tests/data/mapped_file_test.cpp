#include "data/mapped_file.h"

#include "tests/data/data_test_support.h"

using namespace zeroth::data;

TEST_CASE("A file is seen as text and as numbers") {
  TempFolder folder;
  const MappedFile file(folder.write_numbers<uint16_t>("n.bin", {1, 515, 65535}));
  CHECK(file.size() == 6);
  CHECK(file.as<uint16_t>()[1] == 515);
  CHECK(file.text().substr(2, 2) == "\x03\x02");
}

TEST_CASE("An empty file is empty memory") {
  TempFolder folder;
  const MappedFile file(folder.write("empty", ""));
  CHECK(file.size() == 0);
  CHECK(file.text().empty());
}

TEST_CASE("A moved mapping stays where it is") {
  TempFolder folder;
  MappedFile first(folder.write("a", "abc"));
  const MappedFile second(std::move(first));
  CHECK(second.text() == "abc");
}

TEST_CASE("A missing file and a folder are Errors with the path") {
  TempFolder folder;
  const auto missing = folder.path() / "missing";
  check_contains(error_of([&] { MappedFile file(missing); }), missing.string());
  check_contains(error_of([&] { MappedFile file(folder.path()); }), "is not a file");
}
