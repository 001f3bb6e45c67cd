#include "launcher/transport/listener.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/text/units.h"

namespace zeroth::launcher {

using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kPause{50};

}  // namespace

// PendingConnection is an unauthenticated connection. Closing its socket cancels its operations.
struct Listener::PendingConnection {
  PendingConnection(tcp::socket accepted, const HmacKey& secret)
      : socket(std::move(accepted)), timer(socket.get_executor()), handshake(secret) {}

  tcp::socket socket;
  boost::asio::steady_timer timer;
  LauncherHandshake handshake;
  std::array<char, kAnswerBytes> answer{};
};

std::string describe(const RefusedConnections& refused) {
  if (refused.total() == 0) return "";
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(refused.unauthenticated, "did not have the run's secret");
  add(refused.timed_out, "sent nothing");
  add(refused.evicted, "exceeded the limit of concurrent connections");
  return fmt::format("{} to the launcher's port {} refused: {}",
                     pluralize(refused.total(), "connection"),
                     refused.total() == 1 ? "was" : "were", fmt::join(parts, ", "));
}

Listener::Listener(boost::asio::io_context& io,
                   const std::vector<boost::asio::ip::address>& addresses, const HmacKey& secret,
                   OnAgent on_agent, const ListenerOptions& options)
    : io_(io), secret_(secret), on_agent_(std::move(on_agent)), options_(options) {
  for (const auto& address : addresses) {
    sockets_.push_back({Acceptor(io_), boost::asio::steady_timer(io_)});
    Acceptor& acceptor = sockets_.back().acceptor;
    const tcp::endpoint endpoint(address, static_cast<unsigned short>(options_.port));
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) set_close_on_exec(acceptor.native_handle());
    // The port may still have connections of an earlier launcher process.
    if (!error && options_.port != 0) acceptor.set_option(Acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(Acceptor::max_listen_connections, error);
    if (error)
      throw Error("the launcher cannot listen at its address {}{}: {}", address.to_string(),
                  options_.port == 0 ? "" : fmt::format(", port {}", options_.port),
                  error.message());
    accept(sockets_.back());
  }
}

std::string Listener::endpoints() const {
  std::vector<std::string> texts;
  for (const ListenSocket& listen_socket : sockets_) {
    std::ostringstream text;
    text << listen_socket.acceptor.local_endpoint();
    texts.push_back(text.str());
  }
  return fmt::format("{}", fmt::join(texts, ","));
}

void Listener::accept(ListenSocket& listen_socket) {
  listen_socket.acceptor.async_accept([this, &listen_socket](error_code error, tcp::socket socket) {
    if (!listen_socket.acceptor.is_open()) return;
    if (!error) {
      start_handshake(std::move(socket));
      return accept(listen_socket);
    }
    listen_socket.pause.expires_after(kPause);  // no descriptors: retrying at once would spin
    listen_socket.pause.async_wait([this, &listen_socket](error_code stopped) {
      if (!stopped && listen_socket.acceptor.is_open()) accept(listen_socket);
    });
  });
}

void Listener::start_handshake(tcp::socket socket) {
  set_close_on_exec(socket.native_handle());
  if (pending_.size() >= options_.max_pending) drop(*pending_.front(), refused_.evicted);
  const auto connection = std::make_shared<PendingConnection>(std::move(socket), secret_);
  pending_.push_back(connection);
  // This does not block: the greeting fits into the socket's empty buffer.
  error_code error;
  boost::asio::write(connection->socket, boost::asio::buffer(connection->handshake.greeting()),
                     error);
  if (error) return drop(*connection, refused_.timed_out);
  connection->timer.expires_after(options_.handshake_limit);
  connection->timer.async_wait([this, connection](error_code stopped) {
    if (!stopped && connection->socket.is_open()) drop(*connection, refused_.timed_out);
  });
  boost::asio::async_read(
      connection->socket, boost::asio::buffer(connection->answer),
      [this, connection](error_code failed, size_t count) {
        if (!connection->socket.is_open()) return;
        if (failed)
          return drop(*connection, count > 0 ? refused_.unauthenticated : refused_.timed_out);
        check_answer(*connection);
      });
}

void Listener::check_answer(PendingConnection& connection) {
  const auto accepted =
      connection.handshake.accept({connection.answer.data(), connection.answer.size()});
  if (!accepted) return drop(connection, refused_.unauthenticated);
  error_code error;
  boost::asio::write(connection.socket, boost::asio::buffer(accepted->proof), error);
  if (error) return drop(connection, refused_.timed_out);
  const auto channel = std::make_shared<Channel>(std::move(connection.socket), accepted->macs);
  int64_t not_refused = 0;
  drop(connection, not_refused);
  on_agent_(channel);
}

void Listener::drop(PendingConnection& connection, int64_t& count) {
  ++count;
  error_code ignored;
  connection.socket.close(ignored);
  connection.timer.cancel();
  pending_.remove_if([&](const auto& other) { return other.get() == &connection; });
}

void Listener::close() {
  error_code ignored;
  for (ListenSocket& listen_socket : sockets_) {
    listen_socket.acceptor.close(ignored);
    listen_socket.pause.cancel();
  }
  while (!pending_.empty()) {
    int64_t not_refused = 0;
    drop(*pending_.front(), not_refused);
  }
}

}  // namespace zeroth::launcher
