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

  const auto again = SharedSegment::open(segment->ticket());
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
  const std::string other = "another-kernel" + ticket.substr(ticket.find(' '));
  CHECK_THROWS_WITH_AS(SharedSegment::open(other), "its creator runs on another host", Error);
  segment->close();
  CHECK_THROWS_AS(SharedSegment::open(ticket), Error);
}

}  // namespace zeroth::comm
