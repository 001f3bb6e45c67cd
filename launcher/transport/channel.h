// An authenticated connection between launcher and agent. It delivers complete messages in order,
// each once, or reports that it has ended.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/transport/authenticated_frames.h"

namespace zeroth::launcher {

// Keeps a socket from processes that this one starts: an inherited socket would keep the connection
// open. Asio does not set this flag.
void set_close_on_exec(int socket);

// A Channel sends and receives messages. Callbacks run in the io_context's thread, and none after
// close().
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // `socket` has completed the handshake; all further bytes on it are frames.
  Channel(boost::asio::ip::tcp::socket socket, MacPair macs);

  struct ChannelHandlers {
    // The text is valid during the call only. An Error thrown here means that the text is not a
    // message; it ends the connection and becomes the reason.
    std::function<void(std::string_view)> on_message;
    // Called once with the reason, when the connection ends or when invalid data arrives.
    std::function<void(const std::string&)> on_end;
  };
  void start(ChannelHandlers handlers);

  // Never blocks: buffers what the connection cannot accept now. The sender must bound the messages
  // for a peer that does not read.
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

// Connects to a launcher that knows the secret. `endpoints` are as in Listener::endpoints(); names
// may replace addresses. Tries them one after the other, repeatedly. Blocks; runs `io`, in which
// nothing else may wait. Throws Error after `limit` (of the steady clock) with the last error of
// each endpoint. A long wait is reported to `log` (base/machine/timer.h).
std::shared_ptr<Channel> connect_to_launcher(
    boost::asio::io_context& io, const std::string& endpoints, const HmacKey& secret,
    std::chrono::milliseconds limit, const std::function<void(const std::string&)>& log = {});

}  // namespace zeroth::launcher
