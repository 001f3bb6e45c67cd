#include "launcher/transport/channel.h"

#include <doctest/doctest.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <thread>

#include "base/error.h"

namespace zeroth::launcher::connect_test {
namespace {

using boost::asio::ip::tcp;
using std::chrono::milliseconds;

std::shared_ptr<Channel> connect(const std::string& endpoints) {
  boost::asio::io_context io;
  return connect_to_launcher(io, endpoints, HmacKey("secret"), milliseconds(0));
}

}  // namespace

TEST_CASE("endpoints that cannot be understood are named") {
  for (const char* text : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", ":1",
                           "127.0.0.1:1,", "[::1:1", "::1:1"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(connect(text), doctest::Contains("expected ADDRESS:PORT"), Error);
  }
}

TEST_CASE("each endpoint that nobody answers at is named with its reason") {
  CHECK_THROWS_WITH_AS(connect("127.0.0.1:1,[::1]:1"),
                       doctest::Contains("the launcher cannot be reached: 127.0.0.1:1: "), Error);
  CHECK_THROWS_WITH_AS(connect("127.0.0.1:1,[::1]:1"), doctest::Contains("; [::1]:1: "), Error);
  CHECK_THROWS_WITH_AS(connect("no-such-host.invalid:1"),
                       doctest::Contains("reached: no-such-host.invalid:1: "), Error);
  CHECK_THROWS_WITH_AS(connect("localhost:1"), doctest::Contains("reached: localhost:1: "), Error);
}

TEST_CASE("what is no launcher gets nothing of the secret") {
  boost::asio::io_context io;
  tcp::acceptor acceptor(io, {boost::asio::ip::make_address("127.0.0.1"), 0});
  std::thread server([&] {
    tcp::socket socket = acceptor.accept();
    boost::asio::write(socket,
                       boost::asio::buffer("SSH-2.0-OpenSSH_9.2p1 " + std::string(80, ' ')));
    boost::system::error_code error;
    char byte;
    CHECK(socket.read_some(boost::asio::buffer(&byte, 1), error) == 0);
  });
  const std::string endpoint = "127.0.0.1:" + std::to_string(acceptor.local_endpoint().port());
  CHECK_THROWS_WITH_AS(connect(endpoint),
                       ("the launcher cannot be reached: " + endpoint +
                        ": the peer is not a launcher, or is one of another version of Zeroth")
                           .c_str(),
                       Error);
  server.join();
}

TEST_CASE("who answers without the secret is not believed") {
  boost::asio::io_context io;
  tcp::acceptor acceptor(io, {boost::asio::ip::make_address("127.0.0.1"), 0});
  std::thread server([&] {
    tcp::socket socket = acceptor.accept();
    const LauncherHandshake handshake(HmacKey("another"));
    boost::asio::write(socket,
                       boost::asio::buffer(handshake.greeting() + std::string(kProofBytes, 'x')));
    boost::system::error_code error;
    char byte;
    while (!error) socket.read_some(boost::asio::buffer(&byte, 1), error);
  });
  const std::string endpoint = "127.0.0.1:" + std::to_string(acceptor.local_endpoint().port());
  CHECK_THROWS_WITH_AS(connect(endpoint), doctest::Contains("does not know the run's secret"),
                       Error);
  server.join();
}

}  // namespace zeroth::launcher::connect_test
