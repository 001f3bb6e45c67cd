#include "comm/shared_segment.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"

namespace zeroth::comm {

TEST_CASE("another process of the host sees the same memory, and nothing of it has a name") {
  const auto count = [] {
    const auto names = std::filesystem::directory_iterator("/dev/shm");
    return std::distance(begin(names), end(names));
  };
  const auto before = count();
  const auto segment = SharedSegment::create(1 << 20);
  CHECK(count() == before);
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

TEST_CASE("a segment may be larger than /dev/shm, and takes memory only where it is touched") {
  const size_t bytes = std::filesystem::space("/dev/shm").capacity + (size_t{1} << 30);
  const auto segment = SharedSegment::create(bytes);
  segment->data()[bytes - 1] = std::byte{1};
  CHECK(segment->data()[bytes - 1] == std::byte{1});
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
  CHECK_THROWS_WITH_AS(SharedSegment::open(segment->ticket(), 4096, "127.0.0.1-29501"),
                       doctest::Contains("is something else than the memory "
                                         "'zeroth:127.0.0.1-29501' of this run"),
                       Error);
  CHECK(SharedSegment::open(segment->ticket(), 4096, "127.0.0.1-29500")->size() == 4096);
}

TEST_CASE("memory that its maker could make smaller under our feet is not mapped") {
  const MemoryFile file = MemoryFile::create("zeroth:run");
  REQUIRE(ftruncate(file.get(), 4096) == 0);
  CHECK_THROWS_WITH_AS(SharedSegment::open(file.ticket(), 4096, "run"),
                       "the shared memory could shrink: it is not sealed", Error);
}

}  // namespace zeroth::comm
