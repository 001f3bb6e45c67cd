#include "checkpoint/disk.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/file_descriptor.h"
#include "checkpoint/real_disk.h"
#include "tests/checkpoint/fake_disk.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint {
namespace {

using Kind = FakeDisk::Fault::Kind;

}  // namespace

TEST_CASE("a disk's error has path, call, reason, and whether the disk is full") {
  const DiskError full("/a/b", "writing", ENOSPC, "; 3 bytes are free there");
  CHECK(std::string(full.what()) ==
        "/a/b: writing failed: No space left on device; 3 bytes are free there");
  CHECK(full.is_full());
  CHECK(DiskError("/a", "fsync", EDQUOT).is_full());
  CHECK(!DiskError("/a", "fsync", EIO).is_full());
}

TEST_CASE("short writes go on where they ended") {
  FakeDisk disk;
  disk.set_fault(FakeDisk::Fault{.call = 2, .kind = Kind::kShort, .error = 0});
  write_text(disk, "f", "abcdefg");
  CHECK(disk.bytes_of("f") == "abcdefg");
  CHECK(disk.calls() == 5);  // create, two writes, fsync, close
}

TEST_CASE("a tree goes with all that is in it") {
  FakeDisk disk;
  disk.make_folder("a");
  disk.make_folder("a/b");
  write_text(disk, "a/b/c", "1");
  write_text(disk, "d", "2");
  remove_tree(disk, "a");
  remove_tree(disk, "none");
  REQUIRE(disk.list("").size() == 1);
  CHECK(disk.list("")[0].name == "d");
}

TEST_CASE("the disk of the tests forgets what was not synced") {
  FakeDisk disk;
  write_text(disk, "kept", "1");
  disk.sync_folder("");
  {
    const auto file = disk.create("lost", 1);
    write_all(*file, std::as_bytes(std::span("2", 1)), 0);
  }
  disk.rename("kept", "renamed");
  bool saw_old = false, saw_new = false, saw_empty = false, saw_full = false;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto after = disk.after_end(seed);
    saw_old |= holds(*after, "", "kept");
    saw_new |= holds(*after, "", "renamed");
    CHECK(holds(*after, "", "kept") != holds(*after, "", "renamed"));
    const std::string kept = holds(*after, "", "kept") ? "kept" : "renamed";
    CHECK(after->bytes_of(kept) == "1");  // the bytes were synced
    if (!holds(*after, "", "lost")) continue;
    saw_empty |= after->bytes_of("lost") != "2";
    saw_full |= after->bytes_of("lost") == "2";
  }
  CHECK(saw_old);
  CHECK(saw_new);
  CHECK(saw_empty);
  CHECK(saw_full);
}

TEST_CASE("calls of the tests' disk fail where they are told to") {
  FakeDisk disk;
  disk.set_fault(FakeDisk::Fault{.call = 2, .kind = Kind::kError, .error = EDQUOT});
  CHECK(message_of<DiskError>([&] { write_text(disk, "f", "1"); }) ==
        "/fake/f: write failed: Disk quota exceeded");
  disk.set_fault(FakeDisk::Fault{.call = 1, .kind = Kind::kEnd, .error = 0});
  CHECK_THROWS_AS(disk.make_folder("g"), MachineEnd);
  CHECK_THROWS_AS((void)disk.list(""), MachineEnd);
}

TEST_CASE("verify_cost: a tree of thousands of folders in each other goes, too") {
  const TempFolder folder;
  const auto disk = RealDisk::make(folder.path());
  FileDescriptor at(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 3000; ++i) {
    const char* const name = i == 0 ? "tree" : i % 2 == 0 ? "moved-1" : "d";
    REQUIRE(::mkdirat(at.get(), name, 0777) == 0);
    at = FileDescriptor(::openat(at.get(), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  remove_tree(*disk, "tree");
  CHECK(disk->list("").empty());
}

TEST_CASE("a path with too many folders, or longer than the system takes, is too deep") {
  std::string path = "x";
  CHECK(!is_too_deep(path));
  for (size_t i = 0; i < kMaxDepth; ++i) path = "d/" + path;
  CHECK(!is_too_deep(path));
  CHECK(is_too_deep("d/" + path));
  CHECK(is_too_deep(std::string(5000, 'x')));
}

}  // namespace zeroth::checkpoint
