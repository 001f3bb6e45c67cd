#include "launcher/cluster/listener.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace zeroth::launcher {

using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kPause{50};

}  // namespace

// Closing its socket ends what it waits for.
struct Listener::Stranger {
  Stranger(tcp::socket given, const HmacKey& secret)
      : socket(std::move(given)), timer(socket.get_executor()), handshake(secret) {}

  tcp::socket socket;
  boost::asio::steady_timer timer;
  LauncherHandshake handshake;
  std::array<char, kAnswerBytes> answer{};
};

std::string describe(const Refused& refused) {
  if (refused.all() == 0) return "";
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(refused.wrong, "did not know the run's secret");
  add(refused.silent, "said nothing");
  add(refused.crowded, "were too many at a time");
  return fmt::format("{} to the launcher's port {} refused: {}",
                     counted(refused.all(), "connection"), refused.all() == 1 ? "was" : "were",
                     fmt::join(parts, ", "));
}

Listener::Listener(boost::asio::io_context& io,
                   const std::vector<boost::asio::ip::address>& addresses, const HmacKey& secret,
                   OnAgent on_agent, const ListenerOptions& options)
    : io_(io), secret_(secret), on_agent_(std::move(on_agent)), options_(options) {
  for (const auto& address : addresses) {
    doors_.push_back({Acceptor(io_), boost::asio::steady_timer(io_)});
    Acceptor& acceptor = doors_.back().acceptor;
    const tcp::endpoint endpoint(address, static_cast<unsigned short>(options_.port));
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) keep_from_children(acceptor.native_handle());
    // A launcher that was started again finds connections of the one before in its port.
    if (!error && options_.port != 0) acceptor.set_option(Acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(Acceptor::max_listen_connections, error);
    if (error)
      throw Error("the launcher cannot listen at its address {}{}: {}", address.to_string(),
                  options_.port == 0 ? "" : fmt::format(", port {}", options_.port),
                  error.message());
    accept(doors_.back());
  }
}

std::string Listener::endpoints() const {
  std::vector<std::string> texts;
  for (const Door& door : doors_) {
    std::ostringstream text;
    text << door.acceptor.local_endpoint();
    texts.push_back(text.str());
  }
  return fmt::format("{}", fmt::join(texts, ","));
}

void Listener::accept(Door& door) {
  door.acceptor.async_accept([this, &door](error_code error, tcp::socket socket) {
    if (!door.acceptor.is_open()) return;
    if (!error) {
      welcome(std::move(socket));
      return accept(door);
    }
    door.pause.expires_after(kPause);  // as without descriptors: asking at once only burns time
    door.pause.async_wait([this, &door](error_code stopped) {
      if (!stopped && door.acceptor.is_open()) accept(door);
    });
  });
}

void Listener::welcome(tcp::socket socket) {
  keep_from_children(socket.native_handle());
  if (strangers_.size() >= options_.most_strangers) dismiss(*strangers_.front(), refused_.crowded);
  const auto stranger = std::make_shared<Stranger>(std::move(socket), secret_);
  strangers_.push_back(stranger);
  // It fits into the socket's buffer, which is empty: this does not block.
  error_code error;
  boost::asio::write(stranger->socket, boost::asio::buffer(stranger->handshake.greeting()), error);
  if (error) return dismiss(*stranger, refused_.silent);
  stranger->timer.expires_after(options_.handshake_limit);
  stranger->timer.async_wait([this, stranger](error_code stopped) {
    if (!stopped && stranger->socket.is_open()) dismiss(*stranger, refused_.silent);
  });
  boost::asio::async_read(stranger->socket, boost::asio::buffer(stranger->answer),
                          [this, stranger](error_code failed, size_t count) {
                            if (!stranger->socket.is_open()) return;
                            if (failed)
                              return dismiss(*stranger,
                                             count > 0 ? refused_.wrong : refused_.silent);
                            judge(*stranger);
                          });
}

void Listener::judge(Stranger& stranger) {
  const auto accepted = stranger.handshake.accept({stranger.answer.data(), stranger.answer.size()});
  if (!accepted) return dismiss(stranger, refused_.wrong);
  error_code error;
  boost::asio::write(stranger.socket, boost::asio::buffer(accepted->proof), error);
  if (error) return dismiss(stranger, refused_.silent);
  const auto channel = std::make_shared<Channel>(std::move(stranger.socket), accepted->seals);
  int64_t not_refused = 0;
  dismiss(stranger, not_refused);
  on_agent_(channel);
}

void Listener::dismiss(Stranger& stranger, int64_t& count) {
  ++count;
  error_code ignored;
  stranger.socket.close(ignored);
  stranger.timer.cancel();
  strangers_.remove_if([&](const auto& other) { return other.get() == &stranger; });
}

void Listener::close() {
  error_code ignored;
  for (Door& door : doors_) {
    door.acceptor.close(ignored);
    door.pause.cancel();
  }
  while (!strangers_.empty()) {
    int64_t not_refused = 0;
    dismiss(*strangers_.front(), not_refused);
  }
}

}  // namespace zeroth::launcher
