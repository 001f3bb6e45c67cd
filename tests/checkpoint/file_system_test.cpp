#include "checkpoint/file_system.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/machine/file_descriptor.h"
#include "checkpoint/posix_file_system.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::file_system_test {
namespace {

using Kind = FaultyFileSystem::Fault::Kind;

}  // namespace

TEST_CASE("a disk's error has path, call, reason, and whether the disk is full") {
  const FileSystemError full("/a/b", "writing", ENOSPC, "; 3 bytes are free there");
  CHECK(std::string(full.what()) ==
        "/a/b: writing failed: No space left on device; 3 bytes are free there");
  CHECK(full.is_full());
  CHECK(FileSystemError("/a", "fsync", EDQUOT).is_full());
  CHECK(!FileSystemError("/a", "fsync", EIO).is_full());
}

TEST_CASE("short writes go on where they ended") {
  FaultyFileSystem file_system;
  file_system.set_fault(FaultyFileSystem::Fault{.call = 2, .kind = Kind::kShort, .error = 0});
  write_text(file_system, "f", "abcdefg");
  CHECK(file_system.bytes_of("f") == "abcdefg");
  CHECK(file_system.calls() == 5);  // create, two writes, fsync, close
}

TEST_CASE("a tree goes with all that is in it") {
  FaultyFileSystem file_system;
  file_system.create_directory("a");
  file_system.create_directory("a/b");
  write_text(file_system, "a/b/c", "1");
  write_text(file_system, "d", "2");
  remove_tree(file_system, "a");
  remove_tree(file_system, "none");
  REQUIRE(file_system.list("").size() == 1);
  CHECK(file_system.list("")[0].name == "d");
}

TEST_CASE("the disk of the tests forgets what was not synced") {
  FaultyFileSystem file_system;
  write_text(file_system, "kept", "1");
  file_system.sync_directory("");
  {
    const auto file = file_system.create("lost", 1);
    write_all(*file, std::as_bytes(std::span("2", 1)), 0);
  }
  file_system.rename("kept", "renamed");
  bool observed_old = false, observed_new = false, observed_empty = false, observed_full = false;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto after = file_system.after_end(seed);
    observed_old |= exists(*after, "", "kept");
    observed_new |= exists(*after, "", "renamed");
    CHECK(exists(*after, "", "kept") != exists(*after, "", "renamed"));
    const std::string kept = exists(*after, "", "kept") ? "kept" : "renamed";
    CHECK(after->bytes_of(kept) == "1");  // the bytes were synced
    if (!exists(*after, "", "lost")) continue;
    observed_empty |= after->bytes_of("lost") != "2";
    observed_full |= after->bytes_of("lost") == "2";
  }
  CHECK(observed_old);
  CHECK(observed_new);
  CHECK(observed_empty);
  CHECK(observed_full);
}

TEST_CASE("calls of the tests' disk fail where they are told to") {
  FaultyFileSystem file_system;
  file_system.set_fault(FaultyFileSystem::Fault{.call = 2, .kind = Kind::kError, .error = EDQUOT});
  CHECK(message_of<FileSystemError>([&] { write_text(file_system, "f", "1"); }) ==
        "/fake/f: write failed: Disk quota exceeded");
  file_system.set_fault(FaultyFileSystem::Fault{.call = 1, .kind = Kind::kEnd, .error = 0});
  CHECK_THROWS_AS(file_system.create_directory("g"), MachineEnd);
  CHECK_THROWS_AS((void)file_system.list(""), MachineEnd);
}

TEST_CASE("verify_cost: a tree of thousands of folders in each other goes, too") {
  const TempFolder directory;
  const auto file_system = PosixFileSystem::make(directory.path());
  FileDescriptor at(::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 3000; ++i) {
    const char* const name = i == 0 ? "tree" : i % 2 == 0 ? "moved-1" : "d";
    REQUIRE(::mkdirat(at.get(), name, 0777) == 0);
    at = FileDescriptor(::openat(at.get(), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  remove_tree(*file_system, "tree");
  CHECK(file_system->list("").empty());
}

TEST_CASE("a path with too many folders, or longer than the system takes, is too deep") {
  std::string path = "x";
  CHECK(!is_too_deep(path));
  for (size_t i = 0; i < kMaxDepth; ++i) path = "d/" + path;
  CHECK(!is_too_deep(path));
  CHECK(is_too_deep("d/" + path));
  CHECK(is_too_deep(std::string(5000, 'x')));
}

TEST_CASE("a path is split at its last slash") {
  CHECK(split_path("a/b/c") == std::pair<std::string, std::string>("a/b", "c"));
  CHECK(split_path("c") == std::pair<std::string, std::string>("", "c"));
}

}  // namespace zeroth::checkpoint::file_system_test
