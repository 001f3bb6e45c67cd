#include "launcher/machine/port.h"

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/error.h"

namespace zeroth::launcher {

using boost::asio::ip::tcp;

TEST_CASE("a free port is found, and can be asked for by number") {
  const int port = resolve_master_port(std::nullopt);
  CHECK(port > 0);
  CHECK(port < 65536);
  CHECK(resolve_master_port(port) == port);
}

TEST_CASE("a port that anybody listens on is an error that names it") {
  boost::asio::io_context io;
  tcp::acceptor taken(io, {boost::asio::ip::address_v4::loopback(), 0});
  const int port = taken.local_endpoint().port();
  const std::string expected = fmt::format(
      "--master_port {} is taken by another program; leave it out for a free one", port);
  CHECK_THROWS_WITH_AS(resolve_master_port(port), expected.c_str(), Error);
}

}  // namespace zeroth::launcher
