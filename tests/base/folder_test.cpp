#include "base/folder.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/support/second_user.h"
#include "tests/support/temp_folder.h"

namespace zeroth {

namespace fs = std::filesystem;

TEST_CASE("a folder is made part by part, through links of one's own") {
  const TempFolder folder;
  fs::create_directory(folder / "real");
  fs::create_symlink("real", folder / "link");
  const Folder made = Folder::make(folder / "link/a/./b/");
  CHECK(made.path() == folder / "real/a/b");
  CHECK(made.made() == 2);
  CHECK(made.is_ours());
  CHECK(Folder::make(folder / "link/a/b").made() == 0);
  CHECK(resolve_links(folder / "link/none/../x/") == folder / "real/x");
  CHECK(resolve_links(folder / "link/../real/a") == folder / "real/a");
  const fs::path here = fs::current_path();
  CHECK(resolve_links("none") == fs::canonical(here) / "none");
}

TEST_CASE("what is no folder is found by nobody, and named where one should be made") {
  const TempFolder folder;
  folder.write("file", "");
  fs::create_symlink("loop", folder / "loop");
  fs::create_symlink("nothing", folder / "dangling");
  CHECK_FALSE(Folder::find(folder / "none"));
  CHECK_FALSE(Folder::find(folder / "file"));
  CHECK_FALSE(Folder::find(folder / "file/below"));
  CHECK_FALSE(Folder::find(folder / "dangling"));
  CHECK(Folder::find(folder.path())->path() == folder.path());
  CHECK_THROWS_WITH_AS(Folder::make(folder / "file/below"),
                       doctest::Contains("file/below: Not a directory"), Error);
  CHECK_THROWS_WITH_AS(Folder::make(folder / "file"), doctest::Contains("Not a directory"), Error);
  CHECK_THROWS_WITH_AS(resolve_links(folder / "loop/x"),
                       doctest::Contains("Too many levels of symbolic links"), Error);
  CHECK(resolve_links(folder / "file/below") == folder / "file/below");
}

TEST_CASE("clearing a folder touches nothing to which its links lead") {
  const TempFolder folder;
  fs::create_directories(folder / "victim/deep");
  folder.write("victim/deep/precious", "x");
  fs::create_directories(folder / "old/part");
  folder.write("old/part/file", "y");
  fs::create_symlink(folder / "victim", folder / "old/link");
  fs::create_symlink(folder / "victim/deep", folder / "old/part/link");
  const Folder around = *Folder::find(folder.path());
  CHECK_FALSE(around.inside("old")->inside("link"));
  CHECK(around.inside("old")->holds("link"));
  around.remove("old", *around.inside("old"));
  CHECK_FALSE(around.holds("old"));
  CHECK(read_text(folder / "victim/deep/precious") == "x");
}

TEST_CASE("a link that another user has put into a shared folder is not followed" * in_neighbours) {
  const StickyFolder shared;
  const fs::path victim = shared.own("victim");
  const fs::path link = shared / "out";
  if (!as_nobody([&] { return ::symlink(victim.c_str(), link.c_str()) == 0; })) return;
  const std::string refusal = link.string() + " is a link of another user (uid 65534)";
  CHECK_THROWS_WITH_AS(resolve_links(link), doctest::Contains(refusal.c_str()), Error);
  CHECK_THROWS_WITH_AS(Folder::make(link / "x"), doctest::Contains(refusal.c_str()), Error);
  CHECK_THROWS_WITH_AS(Folder::find(link), doctest::Contains(refusal.c_str()), Error);
  CHECK(fs::is_empty(victim));
  // In a folder of their own it is theirs to say where things are.
  const fs::path home = shared.own("home");
  REQUIRE(::chown(home.c_str(), kNobody, kNobody) == 0);
  REQUIRE(as_nobody([&] { return ::symlink(victim.c_str(), (home / "link").c_str()) == 0; }));
  CHECK(resolve_links(home / "link") == victim);
}

}  // namespace zeroth
