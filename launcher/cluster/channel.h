// An authenticated connection between launcher and agent: messages in order, whole, each once, or
// an end that is told.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/cluster/authenticated_frames.h"

namespace zeroth::launcher {

// Keeps a socket from the processes that are started here: one that held it would hold the
// connection too. Asio does not.
void set_close_on_exec(int socket);

// Callbacks run in the io_context's thread, and none after close().
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // `socket` has shaken hands; what comes on it from now on are frames.
  Channel(boost::asio::ip::tcp::socket socket, MacPair macs);

  struct ChannelHandlers {
    // The text lives during the call only. An Error that it throws ends the connection, and says
    // why: what came is no message.
    std::function<void(std::string_view)> on_message;
    // Once, when the connection ends or something comes that is not the peer's; says why.
    std::function<void(const std::string&)> on_end;
  };
  void start(ChannelHandlers handlers);

  // Never blocks: what the connection does not take now is kept. Messages of one who does not read
  // are bounded by whoever sends them.
  void send(std::string_view payload);

  void close();
  bool is_open() const { return socket_.is_open(); }

  boost::asio::ip::address local_address() const { return local_; }
  boost::asio::ip::address remote_address() const { return remote_; }

 private:
  void read();
  void on_bytes(std::string_view bytes);
  void flush();
  void end(const std::string& why);

  boost::asio::ip::tcp::socket socket_;
  boost::asio::ip::address local_;
  boost::asio::ip::address remote_;
  MacPair macs_;
  ChannelHandlers handlers_;
  std::string pending_;
  bool waiting_ = false;
};

}  // namespace zeroth::launcher
