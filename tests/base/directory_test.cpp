#include "base/files/directory.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/support/second_user.h"
#include "tests/support/temp_folder.h"

namespace zeroth::directory_test {

namespace fs = std::filesystem;

TEST_CASE("a folder is made part by part, through links of one's own") {
  const TempFolder directory;
  fs::create_directory(directory / "real");
  fs::create_symlink("real", directory / "link");
  const Directory made = Directory::create(directory / "link/a/./b/");
  CHECK(made.path() == directory / "real/a/b");
  CHECK(made.num_created() == 2);
  CHECK(made.is_owned_by_this_user());
  CHECK(Directory::create(directory / "link/a/b").num_created() == 0);
  CHECK(resolve_links(directory / "link/none/../x/") == directory / "real/x");
  CHECK(resolve_links(directory / "link/../real/a") == directory / "real/a");
  const fs::path here = fs::current_path();
  CHECK(resolve_links("none") == fs::canonical(here) / "none");
}

TEST_CASE("what is no folder is found by nobody, and named where one should be made") {
  const TempFolder directory;
  directory.write("file", "");
  fs::create_symlink("loop", directory / "loop");
  fs::create_symlink("nothing", directory / "dangling");
  CHECK_FALSE(Directory::find(directory / "none"));
  CHECK_FALSE(Directory::find(directory / "file"));
  CHECK_FALSE(Directory::find(directory / "file/below"));
  CHECK_FALSE(Directory::find(directory / "dangling"));
  CHECK(Directory::find(directory.path())->path() == directory.path());
  CHECK_THROWS_WITH_AS(Directory::create(directory / "file/below"),
                       doctest::Contains("file/below: Not a directory"), Error);
  CHECK_THROWS_WITH_AS(Directory::create(directory / "file"), doctest::Contains("Not a directory"),
                       Error);
  CHECK_THROWS_WITH_AS(resolve_links(directory / "loop/x"),
                       doctest::Contains("Too many levels of symbolic links"), Error);
  CHECK(resolve_links(directory / "file/below") == directory / "file/below");
}

TEST_CASE("clearing a folder touches nothing to which its links lead") {
  const TempFolder directory;
  fs::create_directories(directory / "victim/deep");
  directory.write("victim/deep/precious", "x");
  fs::create_directories(directory / "old/part");
  directory.write("old/part/file", "y");
  fs::create_symlink(directory / "victim", directory / "old/link");
  fs::create_symlink(directory / "victim/deep", directory / "old/part/link");
  const Directory around = *Directory::find(directory.path());
  CHECK_FALSE(around.open_subdirectory("old")->open_subdirectory("link"));
  CHECK(around.open_subdirectory("old")->contains("link"));
  around.remove("old", *around.open_subdirectory("old"));
  CHECK_FALSE(around.contains("old"));
  CHECK(read_text(directory / "victim/deep/precious") == "x");
}

TEST_CASE("a link that another user has put into a shared folder is not followed" * in_neighbours) {
  const StickyFolder shared;
  const fs::path victim = shared.own("victim");
  const fs::path link = shared / "out";
  if (!as_nobody([&] { return ::symlink(victim.c_str(), link.c_str()) == 0; })) return;
  const std::string refusal = link.string() + " is a link of another user (uid 65534)";
  CHECK_THROWS_WITH_AS(resolve_links(link), doctest::Contains(refusal.c_str()), Error);
  CHECK_THROWS_WITH_AS(Directory::create(link / "x"), doctest::Contains(refusal.c_str()), Error);
  CHECK_THROWS_WITH_AS(Directory::find(link), doctest::Contains(refusal.c_str()), Error);
  CHECK(fs::is_empty(victim));
  // In a folder of their own it is theirs to say where things are.
  const fs::path home = shared.own("home");
  REQUIRE(::chown(home.c_str(), kNobody, kNobody) == 0);
  REQUIRE(as_nobody([&] { return ::symlink(victim.c_str(), (home / "link").c_str()) == 0; }));
  CHECK(resolve_links(home / "link") == victim);
}

}  // namespace zeroth::directory_test
