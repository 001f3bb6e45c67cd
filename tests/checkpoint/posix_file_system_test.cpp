#include "checkpoint/posix_file_system.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::posix_file_system_test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names(FileSystem& file_system, const std::string& directory) {
  std::vector<std::string> found;
  for (const DirectoryEntry& entry : file_system.list(directory)) found.push_back(entry.name);
  return found;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the folder of a disk is made with those above it, or only found") {
  const TempFolder directory;
  CHECK(PosixFileSystem::find(directory / "a") == nullptr);
  const auto file_system = PosixFileSystem::make(directory / "a/b");
  CHECK(fs::is_directory(directory / "a/b"));
  CHECK(file_system->path() == fs::canonical(directory / "a/b"));
  CHECK(PosixFileSystem::find(directory / "a/b") != nullptr);
}

TEST_CASE("a file is made once, written at any place, and read back") {
  const TempFolder directory;
  const auto file_system = PosixFileSystem::make(directory.path());
  file_system->create_directory("x");
  const auto file = file_system->create("x/y", 6);
  write_all(*file, std::as_bytes(std::span("def", 3)), 3);
  write_all(*file, std::as_bytes(std::span("abc", 3)), 0);
  file->sync();
  file->close();
  CHECK(read_text(*file_system, "x/y", 6) == "abcdef");
  CHECK(message_of<Error>([&] { (void)read_text(*file_system, "x/y", 5); }) ==
        (file_system->path() / "x/y").string() + " has 6 bytes; at most 5 are read");
  CHECK(message_of<FileSystemError>([&] { (void)file_system->create("x/y", 0); }) ==
        (file_system->path() / "x/y").string() + ": making the file failed: File exists");
  const auto old = file_system->open("x/y");
  CHECK(old->size() == 6);
  std::vector<std::byte> bytes(4);
  CHECK(message_of<Error>([&] { read_all(*old, bytes, 4, "P"); }) ==
        "P is cut short: 2 bytes are missing at byte 6");
}

TEST_CASE("a file that is there is joined to write other bytes of it; a link or a FIFO is not") {
  const TempFolder directory;
  const auto file_system = PosixFileSystem::make(directory.path());
  const auto first = file_system->create("y", 6), second = file_system->open_shared("y");
  write_all(*second, std::as_bytes(std::span("def", 3)), 3);
  write_all(*first, std::as_bytes(std::span("abc", 3)), 0);
  second->sync();
  second->close();
  CHECK(read_text(*file_system, "y", 6) == "abcdef");
  CHECK(message_of<FileSystemError>([&] { (void)file_system->open_shared("z"); }) ==
        (file_system->path() / "z").string() +
            ": opening the file failed: No such file or directory");
  fs::create_symlink(file_system->path() / "y", file_system->path() / "link");
  CHECK_THROWS_AS(file_system->open_shared("link"), FileSystemError);
  REQUIRE(::mkfifo((file_system->path() / "fifo").c_str(), 0600) == 0);
  CHECK_THROWS_AS(file_system->open_shared("fifo"), Error);
}

TEST_CASE("folders are listed with kind and size, renamed, exchanged and removed") {
  const TempFolder directory;
  const auto file_system = PosixFileSystem::make(directory.path());
  file_system->create_directory("one");
  write_text(*file_system, "one/f", "12345");
  file_system->create_directory("two");
  fs::create_symlink("one", directory / "link");
  const auto entries = file_system->list("");
  REQUIRE(entries.size() == 3);
  CHECK(entries[0].name == "link");
  CHECK(entries[0].kind == DirectoryEntry::Kind::kOther);
  CHECK(entries[1].kind == DirectoryEntry::Kind::kDirectory);
  CHECK(file_system->list("one")[0].size == 5);
  CHECK(file_system->list("one")[0].ours);
  if (file_system->exchange("one", "two")) {
    CHECK(names(*file_system, "two") == Names{"f"});
    CHECK(file_system->exchange("two", "one"));
  }
  CHECK(message_of<FileSystemError>([&] {
          file_system->rename("two", "one");
        }).find("renaming to one failed") != std::string::npos);
  file_system->rename("one", "three");
  file_system->sync_directory("");
  file_system->sync_directory("three");
  file_system->sync_file("three/f");
  CHECK(names(*file_system, "") == Names{"link", "three", "two"});
  remove_tree(*file_system, "three");
  remove_tree(*file_system, "link");
  remove_tree(*file_system, "not there");
  CHECK(names(*file_system, "") == Names{"two"});
  CHECK(exists(*file_system, "", "two"));
  CHECK(!exists(*file_system, "", "three"));
  CHECK(file_system->free_bytes() > 0);
}

TEST_CASE("no link within the folder is followed, whoever put it there") {
  const TempFolder directory, elsewhere;
  const auto file_system = PosixFileSystem::make(directory.path());
  elsewhere.write("f", "theirs");
  fs::create_symlink(elsewhere.path(), directory / "step-8");
  fs::create_symlink(elsewhere / "f", directory / "latest");
  CHECK_THROWS_AS((void)file_system->open("step-8/f"), FileSystemError);
  CHECK_THROWS_AS((void)file_system->open("latest"), FileSystemError);
  CHECK_THROWS_AS((void)file_system->create("step-8/g", 0), FileSystemError);
  CHECK_THROWS_AS((void)file_system->create("latest", 0), FileSystemError);
  CHECK_THROWS_AS((void)file_system->list("step-8"), FileSystemError);
  CHECK_THROWS_AS(file_system->create_directory("step-8/z"), FileSystemError);
  remove_tree(*file_system, "step-8");
  CHECK(zeroth::read_text(elsewhere / "f") == "theirs");
}

TEST_CASE("what is no regular file is not opened, and a FIFO is not waited for") {
  const TempFolder directory;
  const auto file_system = PosixFileSystem::make(directory.path());
  REQUIRE(::mkfifo((directory / "fifo").c_str(), 0600) == 0);
  file_system->create_directory("d");
  CHECK(message_of<Error>([&] { (void)file_system->open("fifo"); }) ==
        (file_system->path() / "fifo").string() + " is not a regular file");
  CHECK_THROWS_AS((void)file_system->open("d"), Error);
  CHECK(message_of<FileSystemError>([&] { (void)file_system->open("none"); }) ==
        (file_system->path() / "none").string() +
            ": opening the file failed: No such file or directory");
}

TEST_CASE("large writes at any byte, from any address, are what is read") {
  const TempFolder directory;
  const auto file_system = PosixFileSystem::make(directory.path());
  constexpr size_t kSize = (size_t{9} << 20) + 77;
  std::vector<std::byte> bytes(kSize), read(kSize);
  for (size_t i = 0; i < kSize; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 4096);
  for (const int64_t cut : {0, 1, 4096, 300'000, (5 << 20) + 3}) {
    CAPTURE(cut);
    const std::string name = "f" + std::to_string(cut);
    const auto file = file_system->create(name, kSize);
    const auto other = file_system->open_shared(name);  // of another rank
    const std::span whole(bytes);
    write_all(*other, whole.subspan(static_cast<size_t>(cut)), cut);
    write_all(*file, whole.first(static_cast<size_t>(cut)), 0);
    file->sync();
    other->sync();
    file->close();
    other->close();
    read_all(*file_system->open(name), read, 0, name);
    CHECK((read == bytes));
  }
}

TEST_CASE("a file that may not grow is an error with its place") {
  const TempFolder directory;
  const auto result = in_child([&] {
    limit_file_size(4096);
    const auto file_system = PosixFileSystem::make(directory.path());
    try {
      const auto file = file_system->create("f", 0);
      write_all(*file, std::vector<std::byte>(8192), 0);  // of which the system takes half first
    } catch (const FileSystemError& error) {
      return error.reason() == EFBIG && !error.is_full() &&
                     std::string(error.what()).find("writing 4096 bytes at byte 4096 failed") !=
                         std::string::npos
                 ? 0
                 : 2;
    }
    return 1;
  });
  CHECK(result.status == 0);
}

TEST_CASE("names are plain") {
  for (const char* const good : {"a", "a/b", "step-8/zeroth/x.y", "..a", "a..", "...", ".tmp"}) {
    CHECK(is_safe_path(good));
  }
  for (const char* const bad :
       {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", "a\\b"}) {
    CHECK(!is_safe_path(bad));
  }
  CHECK(!is_safe_path(std::string_view("a\0b", 3)));
  CHECK(join_path("", "b") == "b");
  CHECK(join_path("a", "b") == "a/b");
}

}  // namespace zeroth::checkpoint::posix_file_system_test
