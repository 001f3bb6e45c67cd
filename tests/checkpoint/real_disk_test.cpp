#include "checkpoint/real_disk.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names(Disk& disk, const std::string& folder) {
  std::vector<std::string> found;
  for (const Entry& entry : disk.list(folder)) found.push_back(entry.name);
  return found;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the folder of a disk is made with those above it, or only found") {
  const TempFolder folder;
  CHECK(RealDisk::find(folder / "a") == nullptr);
  const auto disk = RealDisk::make(folder / "a/b");
  CHECK(fs::is_directory(folder / "a/b"));
  CHECK(disk->path() == fs::canonical(folder / "a/b"));
  CHECK(RealDisk::find(folder / "a/b") != nullptr);
}

TEST_CASE("a file is made once, written at any place, and read back") {
  const TempFolder folder;
  const auto disk = RealDisk::make(folder.path());
  disk->make_folder("x");
  const auto file = disk->create("x/y", 6);
  write_all(*file, std::as_bytes(std::span("def", 3)), 3);
  write_all(*file, std::as_bytes(std::span("abc", 3)), 0);
  file->sync();
  file->close();
  CHECK(read_text(*disk, "x/y", 6) == "abcdef");
  CHECK(message_of<Error>([&] { (void)read_text(*disk, "x/y", 5); }) ==
        (disk->path() / "x/y").string() + " has 6 bytes; at most 5 are read");
  CHECK(message_of<DiskError>([&] { (void)disk->create("x/y", 0); }) ==
        (disk->path() / "x/y").string() + ": making the file failed: File exists");
  const auto old = disk->open("x/y");
  CHECK(old->size() == 6);
  std::vector<std::byte> bytes(4);
  CHECK(message_of<Error>([&] { read_all(*old, bytes, 4, "P"); }) ==
        "P is cut short: 2 bytes are missing at byte 6");
}

TEST_CASE("a file that is there is joined to write other bytes of it; a link or a FIFO is not") {
  const TempFolder folder;
  const auto disk = RealDisk::make(folder.path());
  const auto first = disk->create("y", 6), second = disk->join("y");
  write_all(*second, std::as_bytes(std::span("def", 3)), 3);
  write_all(*first, std::as_bytes(std::span("abc", 3)), 0);
  second->sync();
  second->close();
  CHECK(read_text(*disk, "y", 6) == "abcdef");
  CHECK(message_of<DiskError>([&] { (void)disk->join("z"); }) ==
        (disk->path() / "z").string() + ": opening the file failed: No such file or directory");
  fs::create_symlink(disk->path() / "y", disk->path() / "link");
  CHECK_THROWS_AS(disk->join("link"), DiskError);
  REQUIRE(::mkfifo((disk->path() / "fifo").c_str(), 0600) == 0);
  CHECK_THROWS_AS(disk->join("fifo"), Error);
}

TEST_CASE("folders are listed with kind and size, renamed, exchanged and removed") {
  const TempFolder folder;
  const auto disk = RealDisk::make(folder.path());
  disk->make_folder("one");
  write_text(*disk, "one/f", "12345");
  disk->make_folder("two");
  fs::create_symlink("one", folder / "link");
  const auto entries = disk->list("");
  REQUIRE(entries.size() == 3);
  CHECK(entries[0].name == "link");
  CHECK(entries[0].kind == Entry::Kind::kOther);
  CHECK(entries[1].kind == Entry::Kind::kFolder);
  CHECK(disk->list("one")[0].size == 5);
  CHECK(disk->list("one")[0].ours);
  if (disk->exchange("one", "two")) {
    CHECK(names(*disk, "two") == Names{"f"});
    CHECK(disk->exchange("two", "one"));
  }
  CHECK(message_of<DiskError>([&] { disk->rename("two", "one"); }).find("renaming to one failed") !=
        std::string::npos);
  disk->rename("one", "three");
  disk->sync_folder("");
  disk->sync_folder("three");
  disk->sync_file("three/f");
  CHECK(names(*disk, "") == Names{"link", "three", "two"});
  remove_tree(*disk, "three");
  remove_tree(*disk, "link");
  remove_tree(*disk, "not there");
  CHECK(names(*disk, "") == Names{"two"});
  CHECK(holds(*disk, "", "two"));
  CHECK(!holds(*disk, "", "three"));
  CHECK(disk->free_bytes() > 0);
}

TEST_CASE("no link within the folder is followed, whoever put it there") {
  const TempFolder folder, elsewhere;
  const auto disk = RealDisk::make(folder.path());
  elsewhere.write("f", "theirs");
  fs::create_symlink(elsewhere.path(), folder / "step-8");
  fs::create_symlink(elsewhere / "f", folder / "latest");
  CHECK_THROWS_AS((void)disk->open("step-8/f"), DiskError);
  CHECK_THROWS_AS((void)disk->open("latest"), DiskError);
  CHECK_THROWS_AS((void)disk->create("step-8/g", 0), DiskError);
  CHECK_THROWS_AS((void)disk->create("latest", 0), DiskError);
  CHECK_THROWS_AS((void)disk->list("step-8"), DiskError);
  CHECK_THROWS_AS(disk->make_folder("step-8/z"), DiskError);
  remove_tree(*disk, "step-8");
  CHECK(zeroth::read_text(elsewhere / "f") == "theirs");
}

TEST_CASE("what is no regular file is not opened, and a FIFO is not waited for") {
  const TempFolder folder;
  const auto disk = RealDisk::make(folder.path());
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  disk->make_folder("d");
  CHECK(message_of<Error>([&] { (void)disk->open("fifo"); }) ==
        (disk->path() / "fifo").string() + " is no regular file");
  CHECK_THROWS_AS((void)disk->open("d"), Error);
  CHECK(message_of<DiskError>([&] { (void)disk->open("none"); }) ==
        (disk->path() / "none").string() + ": opening the file failed: No such file or directory");
}

TEST_CASE("large writes at any byte, from any address, are what is read") {
  const TempFolder folder;
  const auto disk = RealDisk::make(folder.path());
  constexpr size_t kSize = (size_t{9} << 20) + 77;
  std::vector<std::byte> bytes(kSize), read(kSize);
  for (size_t i = 0; i < kSize; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 4096);
  for (const int64_t cut : {0, 1, 4096, 300'000, (5 << 20) + 3}) {
    CAPTURE(cut);
    const std::string name = "f" + std::to_string(cut);
    const auto file = disk->create(name, kSize);
    const auto other = disk->join(name);  // of another rank
    const std::span whole(bytes);
    write_all(*other, whole.subspan(static_cast<size_t>(cut)), cut);
    write_all(*file, whole.first(static_cast<size_t>(cut)), 0);
    file->sync();
    other->sync();
    file->close();
    other->close();
    read_all(*disk->open(name), read, 0, name);
    CHECK((read == bytes));
  }
}

TEST_CASE("a file that may not grow is an error with its place") {
  const TempFolder folder;
  const auto result = in_child([&] {
    limit_file_size(4096);
    const auto disk = RealDisk::make(folder.path());
    try {
      const auto file = disk->create("f", 0);
      write_all(*file, std::vector<std::byte>(8192), 0);  // of which the system takes half first
    } catch (const DiskError& error) {
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
    CHECK(is_plain_path(good));
  }
  for (const char* const bad :
       {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", "a\\b"}) {
    CHECK(!is_plain_path(bad));
  }
  CHECK(!is_plain_path(std::string_view("a\0b", 3)));
  CHECK(joined("", "b") == "b");
  CHECK(joined("a", "b") == "a/b");
}

}  // namespace zeroth::checkpoint
