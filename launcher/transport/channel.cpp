#include "launcher/transport/channel.h"

#include <fcntl.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <utility>

#include "base/error.h"

namespace zeroth::launcher {
namespace {

using boost::asio::ip::tcp;

constexpr size_t kReadBytes = size_t{64} << 10;

std::string close_reason(const boost::system::error_code& error) {
  if (error == boost::asio::error::eof) return "the connection ended";
  return "the connection ended: " + error.message();
}

}  // namespace

void set_close_on_exec(int socket) {
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
}

Channel::Channel(tcp::socket socket, MacPair macs)
    : socket_(std::move(socket)), macs_(std::move(macs)) {
  boost::system::error_code ignored;
  local_ = socket_.local_endpoint(ignored).address();
  remote_ = socket_.remote_endpoint(ignored).address();
  socket_.non_blocking(true, ignored);
  socket_.set_option(tcp::no_delay(true), ignored);
}

void Channel::start(ChannelHandlers handlers) {
  handlers_ = std::move(handlers);
  read();
}

// Waits for readiness and then reads itself, so that a silent connection holds no buffer.
void Channel::read() {
  socket_.async_wait(
      tcp::socket::wait_read, [self = shared_from_this()](boost::system::error_code error) {
        if (!self->is_open()) return;
        if (error) return self->end(close_reason(error));
        std::array<char, kReadBytes> buffer;
        const size_t count = self->socket_.read_some(boost::asio::buffer(buffer), error);
        if (error && error != boost::asio::error::would_block)
          return self->end(close_reason(error));
        self->on_bytes({buffer.data(), count});
        if (self->is_open()) self->read();
      });
}

void Channel::on_bytes(std::string_view bytes) {
  std::string broken;
  try {
    macs_.reader.feed(bytes, [this](std::string_view payload) {
      if (is_open()) handlers_.on_message(payload);
    });
  } catch (const Error& error) {
    broken = error.what();
  }
  if (!broken.empty() && is_open()) end(broken);
}

void Channel::send(std::string_view payload) {
  if (!is_open()) return;
  pending_ += macs_.writer.make_frame(payload);
  if (!waiting_) flush();
}

void Channel::flush() {
  boost::system::error_code error;
  size_t written = 0;
  while (written < pending_.size() && !error)
    written += socket_.write_some(
        boost::asio::buffer(pending_.data() + written, pending_.size() - written), error);
  pending_.erase(0, written);
  // The reader reports other errors, once it has read the earlier data.
  if (error && error != boost::asio::error::would_block) pending_.clear();
  if (pending_.empty()) return;
  waiting_ = true;
  socket_.async_wait(tcp::socket::wait_write,
                     [self = shared_from_this()](boost::system::error_code failed) {
                       self->waiting_ = false;
                       if (!failed && self->is_open()) self->flush();
                     });
}

void Channel::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void Channel::end(const std::string& why) {
  close();
  if (handlers_.on_end) std::exchange(handlers_.on_end, nullptr)(why);
}

}  // namespace zeroth::launcher
