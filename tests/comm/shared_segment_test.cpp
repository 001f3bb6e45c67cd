#include "comm/nodes/shared_segment.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm::shared_segment_test {
namespace {

// What the largest file without a name takes that this process has open.
size_t max_unnamed_bytes() {
  size_t max_bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat status {};
    if (::stat(entry.path().c_str(), &status) != 0 || status.st_nlink != 0) continue;
    max_bytes = std::max(max_bytes, static_cast<size_t>(status.st_blocks) * 512);
  }
  return max_bytes;
}

}  // namespace

TEST_CASE("another process of the host sees the same memory, and nothing of it has a name") {
  // Not by what lies in /dev/shm, where other programs of the machine come and go.
  const auto segment = SharedSegment::create(1 << 20);
  CHECK(max_unnamed_bytes() == 1 << 20);
  const pid_t child = fork();
  if (child == 0) {
    segment->data()[5] = std::byte{42};
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  CHECK(segment->data()[5] == std::byte{42});

  const auto again = SharedSegment::open(segment->ticket(), 1 << 20);
  segment->close();
  again->data()[6] = std::byte{43};
  CHECK(segment->data()[6] == std::byte{43});
  CHECK(again->size() == segment->size());
}

TEST_CASE("a segment has its memory from the start, so that the lack of it is an error") {
  constexpr size_t kBytes = 3 << 20;
  const auto segment = SharedSegment::create(kBytes);
  CHECK(max_unnamed_bytes() == kBytes);
  const ChildResult result = in_child([] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    return message_of<Error>([] { SharedSegment::create(kBytes); }) ==
                   "cannot create 3145728 bytes of shared memory: File too large (ulimit -f: "
                   "4096 bytes)"
               ? 0
               : 1;
  });
  CHECK(result.status == 0);
}

TEST_CASE("a ticket of another host, or one that has become stale, is refused with the reason") {
  const auto segment = SharedSegment::create(4096);
  const std::string ticket = segment->ticket();
  const std::string other = "another-kernel" + ticket.substr(ticket.find(':'));
  CHECK_THROWS_WITH_AS(SharedSegment::open(other, 4096), "its creator runs on another host", Error);
  segment->close();
  CHECK_THROWS_AS(SharedSegment::open(ticket, 4096), Error);
}

TEST_CASE("only memory of the run and of the size that ranks agreed on is mapped") {
  const auto segment = SharedSegment::create(4096, "127.0.0.1-29500");
  CHECK_THROWS_WITH_AS(SharedSegment::open(segment->ticket(), 8192, "127.0.0.1-29500"),
                       "the shared memory has 4096 bytes, but 8192 were agreed on", Error);
  CHECK_THROWS_WITH_AS(
      SharedSegment::open(segment->ticket(), 4096, "127.0.0.1-29501"),
      doctest::Contains("is not the shared memory 'zeroth:127.0.0.1-29501' of this run"), Error);
  CHECK(SharedSegment::open(segment->ticket(), 4096, "127.0.0.1-29500")->size() == 4096);
}

TEST_CASE("memory that its maker could make smaller under our feet is not mapped") {
  const MemoryFile file = MemoryFile::create("zeroth:run");
  REQUIRE(ftruncate(file.get(), 4096) == 0);
  CHECK_THROWS_WITH_AS(SharedSegment::open(file.ticket(), 4096, "run"),
                       "the shared memory could shrink: it is not sealed", Error);
}

}  // namespace zeroth::comm::shared_segment_test
