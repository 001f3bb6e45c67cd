// The launcher's listening sockets, at which agents connect.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "launcher/transport/channel.h"

namespace zeroth::launcher {

struct ListenerOptions {
  // Time for a connection to prove that it knows the secret.
  std::chrono::milliseconds handshake_limit{5000};
  // Maximum number of unauthenticated connections; one more closes the oldest. They bound what
  // strangers can use up.
  size_t max_pending = 64;
  int port = 0;  // of each address; 0: a free one
};

// RefusedConnections counts the refused connections by reason.
struct RefusedConnections {
  int64_t unauthenticated = 0;  // sent an answer that does not prove knowledge of the secret
  int64_t timed_out = 0;        // disconnected, or exceeded the time limit
  int64_t evicted = 0;          // were the oldest when there were too many

  int64_t total() const { return unauthenticated + timed_out + evicted; }
  bool operator==(const RefusedConnections&) const = default;
};
// Returns "3 connections to the launcher were refused: ..."; empty if none was.
std::string describe(const RefusedConnections& refused);

// A Listener listens until close(). Callbacks run in the io_context's thread; `io` must not run
// after the Listener's end.
class Listener {
 public:
  using OnAgent = std::function<void(std::shared_ptr<Channel>)>;

  // Listens on a port of each address; throws Error with address and port. `on_agent` receives
  // every authenticated connection.
  Listener(boost::asio::io_context& io, const std::vector<boost::asio::ip::address>& addresses,
           const HmacKey& secret, OnAgent on_agent, const ListenerOptions& options = {});
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { close(); }

  // Returns "10.0.0.1:4711,[fd00::1]:4712".
  std::string endpoints() const;
  const RefusedConnections& refused() const { return refused_; }
  size_t num_pending() const { return pending_.size(); }

  void close();

 private:
  using Acceptor = boost::asio::ip::tcp::acceptor;
  struct PendingConnection;
  struct ListenSocket {
    Acceptor acceptor;
    boost::asio::steady_timer pause;  // while no file descriptors are available
  };

  void accept(ListenSocket& listen_socket);
  void start_handshake(boost::asio::ip::tcp::socket socket);
  void check_answer(PendingConnection& connection);
  void drop(PendingConnection& connection, int64_t& count);

  boost::asio::io_context& io_;
  HmacKey secret_;
  OnAgent on_agent_;
  ListenerOptions options_;
  std::list<ListenSocket> sockets_;
  std::list<std::shared_ptr<PendingConnection>> pending_;  // oldest first
  RefusedConnections refused_;
};

}  // namespace zeroth::launcher
