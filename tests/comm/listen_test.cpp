#include "comm/listen.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/error.h"
#include "tests/support/listeners.h"

namespace zeroth::comm {
namespace {

int port_of(const FileDescriptor& socket) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  REQUIRE(getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

}  // namespace

TEST_CASE("a socket listens at the address that was given, and at no other") {
  const size_t before = testing::listeners_of("self").size();
  const FileDescriptor socket = listen_at("127.0.0.7", 0);
  const auto listeners = testing::listeners_of("self");
  REQUIRE(listeners.size() == before + 1);
  const auto is_it = [&](const std::string& local) {
    return local == fmt::format("0700007F:{:04X}", port_of(socket));
  };
  CHECK(std::any_of(listeners.begin(), listeners.end(), is_it));
}

TEST_CASE("a port that is taken and an address of another machine are named") {
  const FileDescriptor socket = listen_at("127.0.0.1", 0);
  const int port = port_of(socket);
  const std::string taken =
      fmt::format("MASTER_PORT={} of 127.0.0.1 is taken by another program", port);
  CHECK_THROWS_WITH_AS(listen_at("127.0.0.1", port), taken.c_str(), Error);
  CHECK_THROWS_WITH_AS(listen_at("192.0.2.1", port),
                       "MASTER_ADDR=192.0.2.1 is not an address of this machine, where rank 0 runs",
                       Error);
  CHECK_THROWS_WITH_AS(listen_at("no such name", port),
                       doctest::Contains("MASTER_ADDR=no such name: "), Error);
}

}  // namespace zeroth::comm
