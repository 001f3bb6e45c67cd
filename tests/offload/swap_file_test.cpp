#include "offload/swap_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/error.h"
#include "offload/file_io.h"
#include "tests/offload/faulty_worker.h"
#include "tests/offload/mount.h"
#include "tests/support/second_user.h"
#include "tests/support/temp_folder.h"

namespace zeroth::offload::swap_file_test {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMiB = uint64_t{1} << 20;

}  // namespace

TEST_CASE("a swap file has its size and zeros, and no name") {
  TempFolder directory;
  const SwapFile file({directory / "nvme", "run7", 2}, 3 * kMiB + 1);
  CHECK(file.path() == (directory / "nvme/zeroth-run7/rank-2.swap").string());
  CHECK(file.size_bytes() == 3 * kMiB + kFileAlignment);
  CHECK(fs::is_empty(directory / "nvme"));
  struct stat status {};
  REQUIRE(::fstat(file.descriptor(), &status) == 0);
  CHECK(static_cast<uint64_t>(status.st_size) == file.size_bytes());
  CHECK(static_cast<uint64_t>(status.st_blocks) * 512 >= file.size_bytes());
  CHECK(status.st_nlink == 0);
  CHECK((status.st_mode & 0777) == 0600);

  FileBuffers pool(1, file.size_bytes());
  fill_randomly(pool.memory(), 1);
  FileIo io(file, make_io_workers(worker_options(file, IoEngine::kAuto)));
  io.wait(io.read(0, pool.memory()));
  CHECK(std::all_of(pool.memory().begin(), pool.memory().end(),
                    [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_CASE("files of one rank are told apart by their kind") {
  TempFolder directory;
  const SwapFile one({directory.path(), "run", 1, "optimizer"}, kMiB);
  const SwapFile other({directory.path(), "run", 1, "parameters"}, kMiB);
  CHECK(one.path() == (directory / "zeroth-run/rank-1.optimizer.swap").string());
  CHECK(other.path() == (directory / "zeroth-run/rank-1.parameters.swap").string());
}

TEST_CASE("what a killed run left is removed at the next start, and nothing else") {
  TempFolder directory;
  fs::create_directories(directory / "zeroth-old");
  directory.write("zeroth-old/rank-0.swap", "left over");
  directory.write("zeroth-old/rank-11.optimizer.swap", "left over");
  fs::create_directories(directory / "zeroth-notes");
  directory.write("zeroth-notes/rank-0.swap", "left over");
  directory.write("zeroth-notes/mine.txt", "a user's");
  fs::create_directories(directory / "other");
  directory.write("other/rank-0.swap", "a user's");
  fs::create_directories(directory / "zeroth-empty");
  fs::create_directories(directory / "zeroth-killed");
  fs::permissions(directory / "zeroth-killed", fs::perms::owner_all);
  fs::create_directory_symlink(directory / "other", directory / "zeroth-link");
  const SwapFile file({directory.path(), "new", 0}, kMiB);
  CHECK_FALSE(fs::exists(directory / "zeroth-old"));
  CHECK_FALSE(fs::exists(directory / "zeroth-notes/rank-0.swap"));
  CHECK(fs::exists(directory / "zeroth-notes/mine.txt"));
  CHECK(fs::exists(directory / "other/rank-0.swap"));
  CHECK(fs::exists(directory / "zeroth-empty"));
  CHECK_FALSE(fs::exists(directory / "zeroth-killed"));
}

TEST_CASE("a link in the place of the run's folder leads nowhere") {
  TempFolder directory;
  fs::create_directories(directory / "victim");
  directory.write("victim/rank-0.swap", "precious");
  fs::create_directories(directory / "nvme");
  fs::create_directory_symlink(directory / "victim", directory / "nvme/zeroth-run");
  CHECK_THROWS_WITH_AS(SwapFile({directory / "nvme", "run", 0}, kMiB),
                       doctest::Contains("cannot create the folder of "), Error);
  CHECK(read_text(directory / "victim/rank-0.swap") == "precious");
  CHECK(fs::is_symlink(directory / "nvme/zeroth-run"));
}

TEST_CASE("what another user has put into a shared nvme_path is neither used nor touched" *
          in_neighbours) {
  const StickyFolder shared;
  const fs::path victim = shared.own("victim");
  write_text(victim / "rank-0.swap", "precious");
  const bool planted = as_nobody([&] {
    fs::create_directories(shared / "zeroth-run");
    write_text(shared / "zeroth-run/rank-7.swap", "theirs");
    return ::symlink(victim.c_str(), (shared / "zeroth-other").c_str()) == 0 &&
           ::symlink(victim.c_str(), (shared / "nvme").c_str()) == 0;
  });
  if (!planted) return;
  CHECK_THROWS_WITH_AS(SwapFile({shared.path(), "run", 0}, kMiB),
                       doctest::Contains("its folder belongs to another user (uid 65534)"), Error);
  CHECK_THROWS_WITH_AS(SwapFile({shared.path(), "other", 0}, kMiB),
                       doctest::Contains("zeroth-other/rank-0.swap: Not a directory"), Error);
  CHECK_THROWS_WITH_AS(SwapFile({shared / "nvme", "run", 0}, kMiB),
                       doctest::Contains("is a link of another user (uid 65534)"), Error);
  CHECK_NOTHROW(SwapFile({shared.path(), "third", 0}, kMiB));
  CHECK(read_text(shared / "zeroth-run/rank-7.swap") == "theirs");
  CHECK(read_text(victim / "rank-0.swap") == "precious");
}

TEST_CASE("a process that is killed while it writes leaves nothing") {
  TempFolder directory;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const SwapFile file({directory.path(), "killed", 0}, 4 * kMiB);
    FileBuffers pool(1, 4 * kMiB);
    FileIo io(file, make_io_workers(worker_options(file, IoEngine::kAuto)), kFileAlignment);
    for (;;) {
      io.wait(io.write(0, pool.memory()));
      if (::write(ends[1], "w", 1) != 1) ::_exit(1);
    }
  }
  char byte = 0;
  REQUIRE(::read(ends[0], &byte, 1) == 1);
  REQUIRE(::kill(child, SIGKILL) == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK(fs::is_empty(directory.path()));
}

TEST_CASE("ranks that start and end at the same time get files of their own") {
  TempFolder directory;
  std::vector<std::jthread> ranks;
  std::vector<int> wrong(6, 0);
  for (int rank = 0; rank < 6; ++rank) {
    ranks.emplace_back([&, rank] {
      for (int round = 0; round < 300; ++round) {
        // Two ranks of the same number, as of two jobs with the same run id.
        const SwapFile file({directory.path(), "run", rank / 2}, kFileAlignment, false);
        char byte = static_cast<char>('a' + rank);
        const bool written = ::pwrite(file.descriptor(), &byte, 1, 0) == 1;
        std::this_thread::yield();
        char back = 0;
        if (!written || ::pread(file.descriptor(), &back, 1, 0) != 1 || back != byte) ++wrong[rank];
      }
    });
  }
  ranks.clear();
  CHECK(wrong == std::vector<int>(6, 0));
  CHECK(fs::is_empty(directory.path()));
}

TEST_CASE("a file that does not fit is an error with path, needed and free bytes") {
  TempFolder directory;
  const uint64_t needed = *free_bytes(directory.path()) * 2 / kFileAlignment * kFileAlignment;
  const std::string said = message_of<Error>([&] {
    SwapFile({directory.path(), "big", 1}, needed);
  });
  CHECK(said.find((directory / "zeroth-big/rank-1.swap needs ").string()) == 0);
  CHECK(said.find(fmt::format("({} bytes), but {} has ", needed, directory.path().string())) !=
        std::string::npos);
  CHECK(said.find(" free (") != std::string::npos);
  CHECK(fs::is_empty(directory.path()));
}

TEST_CASE("a folder that cannot be made is an error with its path") {
  TempFolder directory;
  directory.write("file", "");
  CHECK_THROWS_WITH_AS(SwapFile({directory / "file/nvme", "run", 0}, kMiB),
                       doctest::Contains("file/nvme: Not a directory"), Error);
  CHECK_THROWS_WITH_AS(free_bytes(directory / "none"), doctest::Contains("No such file"), Error);
}

TEST_CASE("a disk that is really full fails the write, not the run's other files") {
  TempFolder directory;
  const Mount small(directory.path(), "tmpfs", "size=8m");
  if (!small) return;
  CHECK_THROWS_WITH_AS(SwapFile({directory.path(), "big", 0}, 16 * kMiB),
                       doctest::Contains("8.00 MiB free (8388608 bytes)"), Error);
  const SwapFile file({directory.path(), "run", 0}, 6 * kMiB);
  CHECK(file.notes().back().find("is held in memory (tmpfs)") != std::string::npos);
  FileBuffers pool(1, 6 * kMiB);
  for (const auto engine : engines()) {
    // Somebody takes the place of what the file gives up.
    REQUIRE(::fallocate(file.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4 * kMiB,
                        2 * kMiB) == 0);
    directory.write("filler", std::string(*free_bytes(directory.path()), 'x'));
    FileIo io(file, make_io_workers(worker_options(file, engine)), kMiB);
    INFO(io.engine());
    CHECK_THROWS_WITH_AS(io.wait(io.write(0, pool.memory())),
                         doctest::Contains("zeroth-run/rank-0.swap: No space left on device"),
                         Error);
    io.wait(io.write(0, pool.memory().first(4 * kMiB)));
    fs::remove(directory / "filler");
    io.wait(io.write(0, pool.memory()));
  }
}

TEST_CASE("a file system that refuses O_DIRECT is used through the page cache, with a note") {
  TempFolder directory;
  const Mount plain(directory.path(), "ramfs", "");
  if (!plain) return;
  const SwapFile file({directory.path(), "run", 0}, 2 * kMiB);
  CHECK(file.size_bytes() == 2 * kMiB);
  CHECK(file.notes().front().find(
            "zeroth-run/rank-0.swap: its file system does not support O_DIRECT") !=
        std::string::npos);
  FileBuffers pool(2, 2 * kMiB);
  const std::span<std::byte> written = pool[0], back = pool[1];
  fill_randomly(written, 3);
  for (const auto engine : engines()) {
    FileIo io(file, make_io_workers(worker_options(file, engine)));
    io.wait(io.write(0, written));
    io.wait(io.read(0, back));
    CHECK(same(written, back));
    std::fill(back.begin(), back.end(), std::byte{0});
  }
}

}  // namespace zeroth::offload::swap_file_test
