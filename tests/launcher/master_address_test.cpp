#include "launcher/machine/local_addresses.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/error.h"
#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::master_address_test {

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

TEST_CASE("addresses and names of this machine are accepted") {
  std::array<char, 256> host{};
  REQUIRE(::gethostname(host.data(), host.size() - 1) == 0);
  for (const std::string& address :
       std::vector<std::string>{"127.0.0.1", "127.0.0.7", "localhost", host.data()}) {
    CAPTURE(address);
    CHECK_NOTHROW(check_master_addr(address));
  }
}

TEST_CASE("a master address of another machine is refused before any rank starts") {
  const auto result =
      run_zeroth({"--num_gpus=2", "--master_addr", "192.0.2.1", rank_program(), "env", "RANK"});
  CHECK(result.status == 1);
  CHECK(result.out.empty());
  CHECK(result.err ==
        "zeroth: error: --master_addr 192.0.2.1 is not an address of this machine, where all ranks "
        "run; leave it out for 127.0.0.1\n");
  const auto unknown = run_zeroth({"--master_addr", "no.such.host.invalid", "true"});
  CHECK(unknown.status == 1);
  CHECK(unknown.err.starts_with(
      "zeroth: error: --master_addr no.such.host.invalid cannot be resolved: "));
}

}  // namespace zeroth::launcher::master_address_test
