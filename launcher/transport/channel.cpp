#include "launcher/transport/channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine/timer.h"
#include "base/text/printable.h"
#include "base/text/units.h"

namespace zeroth::launcher {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr size_t kReadBytes = size_t{64} << 10;
constexpr milliseconds kAttemptTimeout{3000};  // a running launcher answers within milliseconds
constexpr milliseconds kPause{100};

std::string close_reason(const error_code& error) {
  if (error == boost::asio::error::eof) return "the connection ended";
  return "the connection ended: " + error.message();
}

struct LauncherEndpoint {
  std::string text;
  std::string host;
  std::string port;
};

LauncherEndpoint parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos) {
    std::string host = text.substr(0, colon);
    const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (in_brackets) host = host.substr(1, host.size() - 2);
    const auto port = parse_number<unsigned short>(text.substr(colon + 1));
    const bool is_host = !host.empty() && (in_brackets || host.find_first_of("[]:") == host.npos);
    if (is_host && port && *port != 0) return {text, host, std::to_string(*port)};
  }
  throw Error("invalid launcher address '{}': expected ADDRESS:PORT", shortened(text));
}

// Resolves the name at each attempt: it may become known only later.
std::optional<tcp::endpoint> resolve_endpoint(boost::asio::io_context& io,
                                              const LauncherEndpoint& endpoint,
                                              std::string& reason) {
  error_code error;
  const auto found = tcp::resolver(io).resolve(endpoint.host, endpoint.port, error);
  if (!error && !found.empty()) return found.begin()->endpoint();
  reason = error ? error.message() : "no address found";
  return std::nullopt;
}

std::vector<LauncherEndpoint> parse_endpoints(const std::string& texts) {
  std::vector<LauncherEndpoint> endpoints;
  size_t begin = 0;
  for (size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = texts.find(',', begin);
    endpoints.push_back(parse_endpoint(texts.substr(begin, end - begin)));
  }
  return endpoints;
}

// DialAttempt makes one attempt. Its steps are asynchronous only to allow a timeout.
class DialAttempt {
 public:
  DialAttempt(boost::asio::io_context& io, const HmacKey& secret)
      : io_(io), socket_(io), secret_(secret) {}

  // Returns null with the reason if no launcher answers.
  std::shared_ptr<Channel> run(const tcp::endpoint& endpoint, std::string& reason) {
    std::string greeting(kGreetingBytes, '\0');
    reason = step(
        [&] { socket_.async_connect(endpoint, [this](error_code error) { result_ = error; }); });
    if (reason.empty()) reason = step([&] { read(greeting); });
    if (!reason.empty()) return nullptr;
    try {
      return run_handshake(AgentHandshake(secret_, greeting), reason);
    } catch (const Error& error) {
      reason = error.what();
      return nullptr;
    }
  }

 private:
  std::shared_ptr<Channel> run_handshake(const AgentHandshake& handshake, std::string& reason) {
    std::string proof(kProofBytes, '\0');
    reason = step([&] {
      boost::asio::async_write(socket_, boost::asio::buffer(handshake.answer()),
                               [this](error_code error, size_t) { result_ = error; });
    });
    if (reason.empty()) reason = step([&] { read(proof); });
    if (!reason.empty()) {
      reason += ", possibly because the launcher has a different secret (ZEROTH_SECRET)";
      return nullptr;
    }
    const auto macs = handshake.accept(proof);
    if (macs) {
      set_close_on_exec(socket_.native_handle());
      return std::make_shared<Channel>(std::move(socket_), *macs);
    }
    reason = "the peer does not know the run's secret";
    return nullptr;
  }

  void read(std::string& into) {
    boost::asio::async_read(socket_, boost::asio::buffer(into),
                            [this](error_code error, size_t) { result_ = error; });
  }

  // Runs one step. Returns the error; empty: none.
  std::string step(const std::function<void()>& begin) {
    result_.reset();
    begin();
    io_.restart();
    const auto end = std::chrono::steady_clock::now() + kAttemptTimeout;
    while (!result_ && io_.run_one_until(end) > 0) {
    }
    if (result_) return *result_ ? result_->message() : "";
    error_code ignored;
    socket_.close(ignored);
    io_.restart();
    io_.run();  // completes the cancelled operation
    return fmt::format("no answer within {} s", kAttemptTimeout.count() / 1000);
  }

  boost::asio::io_context& io_;
  tcp::socket socket_;
  HmacKey secret_;
  std::optional<error_code> result_;
};

}  // namespace

void set_close_on_exec(int socket) {
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
}

Channel::Channel(tcp::socket socket, MacPair macs)
    : socket_(std::move(socket)), macs_(std::move(macs)) {
  error_code ignored;
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
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
    if (!self->is_open()) return;
    if (error) return self->end(close_reason(error));
    std::array<char, kReadBytes> buffer;
    const size_t count = self->socket_.read_some(boost::asio::buffer(buffer), error);
    if (error && error != boost::asio::error::would_block) return self->end(close_reason(error));
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
  error_code error;
  size_t written = 0;
  while (written < pending_.size() && !error)
    written += socket_.write_some(
        boost::asio::buffer(pending_.data() + written, pending_.size() - written), error);
  pending_.erase(0, written);
  // The reader reports other errors, once it has read the earlier data.
  if (error && error != boost::asio::error::would_block) pending_.clear();
  if (pending_.empty()) return;
  waiting_ = true;
  socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](error_code failed) {
    self->waiting_ = false;
    if (!failed && self->is_open()) self->flush();
  });
}

void Channel::close() {
  error_code ignored;
  socket_.close(ignored);
}

void Channel::end(const std::string& why) {
  close();
  if (handlers_.on_end) std::exchange(handlers_.on_end, nullptr)(why);
}

std::shared_ptr<Channel> connect_to_launcher(boost::asio::io_context& io,
                                             const std::string& endpoints, const HmacKey& secret,
                                             milliseconds limit,
                                             const std::function<void(const std::string&)>& log) {
  const std::vector<LauncherEndpoint> all = parse_endpoints(endpoints);
  const auto begin = std::chrono::steady_clock::now();
  const auto end = begin + limit;
  SlowWait slow;
  while (true) {
    std::vector<std::string> reasons;
    for (const LauncherEndpoint& endpoint : all) {
      std::string reason;
      const auto where = resolve_endpoint(io, endpoint, reason);
      auto channel = where ? DialAttempt(io, secret).run(*where, reason) : nullptr;
      io.restart();
      if (channel) return channel;
      reasons.push_back(fmt::format("{}: {}", endpoint.text, reason));
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= end) throw Error("the launcher cannot be reached: {}", fmt::join(reasons, "; "));
    const auto waited = std::chrono::duration_cast<milliseconds>(now - begin);
    if (log && slow.due(waited))
      log(fmt::format("the launcher cannot be reached yet: {}; retrying, {} s so far, up to {} s",
                      fmt::join(reasons, "; "), waited.count() / 1000, limit.count() / 1000));
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace zeroth::launcher
