#include "launcher/transport/listener.h"

#include <doctest/doctest.h>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/text/units.h"
#include "launcher/transport/channel.h"
#include "tests/support/listeners.h"

namespace zeroth::launcher::listener_test {
namespace {

using boost::asio::ip::tcp;
using std::chrono::milliseconds;

const auto kLoopback = boost::asio::ip::make_address("127.0.0.1");

// A listener in a thread of its own, which says "you said MESSAGE" to who has proved himself.
class Served {
 public:
  explicit Served(const std::string& secret, const ListenerOptions& options = {})
      : listener_(
            io_, {kLoopback}, HmacKey(secret),
            [this](std::shared_ptr<Channel> channel) { serve(std::move(channel)); }, options),
        endpoints_(listener_.endpoints()),
        thread_([this] { io_.run(); }) {}
  ~Served() {
    on_thread([this] {
      listener_.close();
      for (const auto& channel : channels_) channel->close();
    });
    thread_.join();
  }

  const std::string& endpoints() const { return endpoints_; }
  unsigned short port() const {
    return *parse_number<unsigned short>(endpoints_.substr(endpoints_.rfind(':') + 1));
  }
  RefusedConnections refused() {
    RefusedConnections now;
    on_thread([&] { now = listener_.refused(); });
    return now;
  }
  size_t num_pending() {
    size_t now = 0;
    on_thread([&] { now = listener_.num_pending(); });
    return now;
  }

 private:
  void serve(std::shared_ptr<Channel> channel) {
    channels_.push_back(channel);
    channel->start({[plain = channel.get()](std::string_view message) {
                      plain->send("you said " + std::string(message));
                    },
                    [](const std::string&) {}});
  }
  void on_thread(const std::function<void()>& work) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  boost::asio::io_context io_;
  Listener listener_;
  std::string endpoints_;
  std::vector<std::shared_ptr<Channel>> channels_;
  std::thread thread_;
};

// Says one thing as an agent and gives back the answer.
std::string talk(const Served& served, const std::string& secret, const std::string& text) {
  boost::asio::io_context io;
  const auto channel =
      connect_to_launcher(io, served.endpoints(), HmacKey(secret), milliseconds(0));
  std::string answer;
  channel->start({[&](std::string_view message) {
                    answer = message;
                    channel->close();
                  },
                  [&](const std::string& why) { answer = why; }});
  channel->send(text);
  io.run_for(std::chrono::minutes(1));
  return answer;
}

tcp::socket stranger(boost::asio::io_context& io, const Served& served) {
  tcp::socket socket(io);
  socket.connect({kLoopback, served.port()});
  return socket;
}

std::string read_greeting(tcp::socket& socket) {
  std::string greeting(kGreetingBytes, '\0');
  boost::asio::read(socket, boost::asio::buffer(greeting));
  return greeting;
}

// Whether the far end closes; what it says before is left out.
bool is_sent_away(tcp::socket& socket) {
  boost::system::error_code error;
  char byte;
  while (!error) socket.read_some(boost::asio::buffer(&byte, 1), error);
  return true;
}

template <typename Condition>
bool soon(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

}  // namespace

TEST_CASE("an agent with the run's secret is let in, and messages go both ways") {
  Served served("the secret");
  CHECK(talk(served, "the secret", "hello") == "you said hello");
  const std::string large(3'000'000, 'x');
  CHECK(talk(served, "the secret", large) == "you said " + large);
  CHECK(served.refused() == RefusedConnections{});
}

TEST_CASE("a wrong secret is refused and counted, and the agent says why it gave up") {
  Served served("the secret");
  CHECK_THROWS_WITH_AS(
      talk(served, "another", "hello"),
      ("the launcher cannot be reached: " + served.endpoints() +
       ": End of file, possibly because the launcher has a different secret (ZEROTH_SECRET)")
          .c_str(),
      Error);
  CHECK(served.refused() == RefusedConnections{.unauthenticated = 1});
  CHECK(talk(served, "the secret", "hello") == "you said hello");
}

TEST_CASE("garbage, half an answer and an answer of another connection are refused") {
  Served served("the secret");
  boost::asio::io_context io;
  tcp::socket garbage = stranger(io, served);
  boost::asio::write(garbage, boost::asio::buffer("GET / HTTP/1.1\r\n\r\n" + std::string(80, 'x')));
  CHECK(is_sent_away(garbage));
  tcp::socket half = stranger(io, served);
  boost::asio::write(half, boost::asio::buffer(std::string("half")));
  half.shutdown(tcp::socket::shutdown_send);
  CHECK(is_sent_away(half));
  tcp::socket heard = stranger(io, served), replayed = stranger(io, served);
  const std::string answer = AgentHandshake(HmacKey("the secret"), read_greeting(heard)).answer();
  boost::asio::write(replayed, boost::asio::buffer(answer));
  CHECK(is_sent_away(replayed));
  CHECK(served.refused() == RefusedConnections{.unauthenticated = 3});
  CHECK(talk(served, "the secret", "hello") == "you said hello");
}

TEST_CASE("frames that are forged end their connection only") {
  Served served("the secret");
  boost::asio::io_context io;
  tcp::socket socket = stranger(io, served);
  const AgentHandshake handshake(HmacKey("the secret"), read_greeting(socket));
  boost::asio::write(socket, boost::asio::buffer(handshake.answer()));
  std::string proof(kProofBytes, '\0');
  boost::asio::read(socket, boost::asio::buffer(proof));
  auto macs = handshake.accept(proof);
  REQUIRE(macs);
  const std::string frame = macs->writer.make_frame("hello");
  boost::asio::write(socket, boost::asio::buffer(frame + frame));
  CHECK(is_sent_away(socket));
  CHECK(talk(served, "the secret", "hello") == "you said hello");
}

TEST_CASE("who says nothing is sent away when the time is over") {
  Served served("the secret", {.handshake_limit = milliseconds(50)});
  boost::asio::io_context io;
  tcp::socket timed_out = stranger(io, served);
  CHECK(is_sent_away(timed_out));
  CHECK(served.refused() == RefusedConnections{.timed_out = 1});
}

TEST_CASE("of too many that say nothing the oldest is sent away, and an agent still gets in") {
  Served served("the secret", {.handshake_limit = std::chrono::minutes(5), .max_pending = 8});
  boost::asio::io_context io;
  std::vector<tcp::socket> open;
  for (int i = 0; i < 20; ++i) {
    open.push_back(stranger(io, served));
    read_greeting(open.back());
  }
  CHECK(served.num_pending() == 8);
  CHECK(served.refused() == RefusedConnections{.evicted = 12});
  CHECK(is_sent_away(open.front()));
  CHECK(talk(served, "the secret", "hello") == "you said hello");
}

TEST_CASE("10,000 connections are refused and counted, and an agent still gets in") {
  Served served("the secret");
  constexpr int kMany = 10'000;
  boost::asio::io_context io;
  for (int i = 0; i < kMany; ++i) {
    tcp::socket socket = stranger(io, served);
    if (i % 2 == 0) boost::asio::write(socket, boost::asio::buffer(std::string(kAnswerBytes, 'x')));
    if (i % 1000 == 0) CHECK(talk(served, "the secret", "hello") == "you said hello");
  }
  CHECK(soon([&] { return served.refused().total() == kMany; }));
  CHECK(served.num_pending() == 0);
  CHECK(talk(served, "the secret", "hello") == "you said hello");
}

TEST_CASE("it listens at no address but those given, and at none once it is closed") {
  boost::asio::io_context io;
  const size_t before = testing::listeners_of("self").size();
  Listener listener(io, {kLoopback}, HmacKey("x"), [](const auto&) {});
  const auto now = testing::listeners_of("self");
  CHECK(now.size() == before + 1);
  CHECK(now.back().starts_with("0100007F:"));
  listener.close();
  CHECK(testing::listeners_of("self").size() == before);
  CHECK_THROWS_WITH_AS(
      Listener(io, {boost::asio::ip::make_address("192.0.2.1")}, HmacKey("x"), [](const auto&) {}),
      doctest::Contains("the launcher cannot listen at its address 192.0.2.1: "), Error);
}

TEST_CASE("connections that were refused are told by what they did") {
  CHECK(describe(RefusedConnections{}) == "");
  CHECK(describe(RefusedConnections{.unauthenticated = 1}) ==
        "1 connection to the launcher's port was refused: 1 did not have the run's secret");
  CHECK(describe(RefusedConnections{.unauthenticated = 2, .timed_out = 3, .evicted = 4}) ==
        "9 connections to the launcher's port were refused: 2 did not have the run's secret, 3 "
        "sent nothing, 4 exceeded the limit of concurrent connections");
}

}  // namespace zeroth::launcher::listener_test
