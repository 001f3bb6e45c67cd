// Where agents reach the launcher.
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

#include "launcher/cluster/channel.h"

namespace zeroth::launcher {

struct ListenerOptions {
  // For a connection to prove that it knows the secret.
  std::chrono::milliseconds handshake_limit{5000};
  // Connections that have not yet; one more ends the oldest. Nobody can take more than these.
  size_t max_pending = 64;
  int port = 0;  // of each address; 0: a free one
};

// How many connections were refused, by what they did.
struct RefusedConnections {
  int64_t unauthenticated = 0;  // said something, but not what one says who knows the secret
  int64_t timed_out = 0;        // went, or were sent away when their time was over
  int64_t evicted = 0;          // were the oldest of too many

  int64_t total() const { return unauthenticated + timed_out + evicted; }
  bool operator==(const RefusedConnections&) const = default;
};
// "3 connections to the launcher were refused: ..."; empty where none was.
std::string describe(const RefusedConnections& refused);

// Callbacks run in the io_context's thread. Listens until close(); `io` must not run after its end.
class Listener {
 public:
  using OnAgent = std::function<void(std::shared_ptr<Channel>)>;

  // Listens at a port of each address; throws Error with both. `on_agent` gets every
  // connection that has proved itself.
  Listener(boost::asio::io_context& io, const std::vector<boost::asio::ip::address>& addresses,
           const HmacKey& secret, OnAgent on_agent, const ListenerOptions& options = {});
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { close(); }

  // "10.0.0.1:4711,[fd00::1]:4712"
  std::string endpoints() const;
  const RefusedConnections& refused() const { return refused_; }
  size_t num_pending() const { return pending_.size(); }

  void close();

 private:
  using Acceptor = boost::asio::ip::tcp::acceptor;
  struct PendingConnection;
  struct ListenSocket {
    Acceptor acceptor;
    boost::asio::steady_timer pause;  // where no more descriptors are to be had
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
  std::list<std::shared_ptr<PendingConnection>> pending_;  // the oldest first
  RefusedConnections refused_;
};

}  // namespace zeroth::launcher
