#include "comm/groups/pair_link.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <list>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/machine/random_bytes.h"
#include "base/sha256.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "comm/bootstrap/host_address.h"
#include "comm/bootstrap/key_value_store.h"
#include "comm/bootstrap/rank_bootstrap.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

// listener: nonce            other: nonce, proof            listener: proof
// A proof is an HMAC over its maker's role, the pair's name and both nonces.
constexpr size_t kNonceBytes = 32, kProofBytes = 32, kAnswerBytes = kNonceBytes + kProofBytes;
constexpr std::chrono::seconds kHandshakeTimeout{5};
constexpr std::chrono::milliseconds kPause{20};
constexpr size_t kMaxCandidates = 64;  // one more closes the oldest
constexpr const char* kKey = "pair";

// Returns the proof of this role, "listener" or "other".
std::string make_proof(const PairOptions& options, std::string_view role,
                       std::string_view listeners_nonce, std::string_view others_nonce) {
  const std::string label = fmt::format("zeroth pair {} {}\n", role, options.name);
  return std::string(
      digest_bytes(HmacKey(options.secret).digest(label, listeners_nonce, others_nonce)));
}

void set_blocking(int fd, bool blocks) {
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

bool send_all(int fd, std::string_view text) {
  return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// Returns "10.0.0.1 4711", for example.
std::string socket_address(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, host.data(), host.size(), port.data(),
                    port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    throw Error("cannot get the address of a socket: {}", system_reason(errno));
  return fmt::format("{} {}", host.data(), port.data());
}

// A PairListener listens until the other rank has connected.
class PairListener {
 public:
  explicit PairListener(const PairOptions& options)
      : options_(options), listener_(listen_at(options.address, 0)) {
    set_blocking(listener_.get(), false);
  }
  std::string name() const { return socket_address(listener_.get()); }

  FileDescriptor wait() {
    for (SuspendAwareTimer time; time.elapsed() < options_.timeout;) {
      poll_all();
      for (auto candidate = candidates_.begin(); candidate != candidates_.end();) {
        if (const auto known = authenticate(*candidate)) {
          if (*known) return std::move(candidate->socket);
          candidate = candidates_.erase(candidate);
        } else {
          ++candidate;
        }
      }
      accept_all();
    }
    throw Error("the other rank did not connect: {}", timeout_message(options_.timeout));
  }

 private:
  struct Candidate {
    FileDescriptor socket;
    std::string nonce, received;
    SuspendAwareTimer time;
  };

  void poll_all() const {
    std::vector<pollfd> all = {{listener_.get(), POLLIN, 0}};
    for (const Candidate& candidate : candidates_)
      all.push_back({candidate.socket.get(), POLLIN, 0});
    ::poll(all.data(), all.size(), static_cast<int>(kPollInterval.count()));
  }

  // Accepts all pending connections, also those that close before they are authenticated.
  void accept_all() {
    for (;;) {
      FileDescriptor socket(
          ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.get() < 0) {
        if (errno != EAGAIN) std::this_thread::sleep_for(kPause);  // e.g. no free descriptor
        return;
      }
      std::string nonce = random_bytes(kNonceBytes);
      if (!send_all(socket.get(), nonce)) continue;
      candidates_.push_back({std::move(socket), std::move(nonce), "", {}});
      if (candidates_.size() > kMaxCandidates) candidates_.pop_front();
    }
  }

  // Returns whether the client is the other rank; empty: not known yet.
  std::optional<bool> authenticate(Candidate& candidate) const {
    std::array<char, kAnswerBytes> bytes{};
    const int fd = candidate.socket.get();
    const ssize_t got = ::recv(fd, bytes.data(), kAnswerBytes - candidate.received.size(), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got > 0) candidate.received.append(bytes.data(), static_cast<size_t>(got));
    if (candidate.received.size() < kAnswerBytes)
      return candidate.time.elapsed() < kHandshakeTimeout ? std::nullopt : std::optional(false);
    const std::string_view nonce = std::string_view(candidate.received).substr(0, kNonceBytes);
    const std::string_view proof = std::string_view(candidate.received).substr(kNonceBytes);
    if (!constant_time_equal(proof, make_proof(options_, "other", candidate.nonce, nonce)))
      return false;
    if (!send_all(fd, make_proof(options_, "listener", candidate.nonce, nonce))) return false;
    set_blocking(fd, true);
    return true;
  }

  const PairOptions& options_;
  FileDescriptor listener_;
  std::list<Candidate> candidates_;  // oldest first
};

// A ConnectAttempt is one attempt to connect. It takes kHandshakeTimeout at most and ends when the
// caller's `time` reaches `limit`. It waits in short polls, so that `time` counts all of it.
class ConnectAttempt {
 public:
  ConnectAttempt(const addrinfo& address, SuspendAwareTimer& time, std::chrono::milliseconds limit)
      : socket_(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
        time_(time),
        end_(std::min<std::chrono::milliseconds>(time.elapsed() + kHandshakeTimeout, limit)),
        error_(connect(address)) {}

  // Returns the reason of the failure; empty: connected.
  std::string failure_reason() const { return error_ == 0 ? "" : system_reason(error_); }

  // Returns whether each side has proved to the other that it is the expected rank.
  bool handshake(const PairOptions& options) {
    const std::string theirs = read(kNonceBytes), own = random_bytes(kNonceBytes);
    return theirs.size() == kNonceBytes &&
           send_all(socket_.get(), own + make_proof(options, "other", theirs, own)) &&
           constant_time_equal(read(kProofBytes), make_proof(options, "listener", theirs, own));
  }

  FileDescriptor release_socket() {
    set_blocking(socket_.get(), true);
    return std::move(socket_);
  }

 private:
  // Returns 0 or an errno value.
  int connect(const addrinfo& address) {
    const int fd = socket_.get();
    if (fd < 0) return errno;
    if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    if (!wait_for(POLLOUT)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof(error);
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
  }

  bool wait_for(short event) {
    while (time_.elapsed() < end_) {
      pollfd one{socket_.get(), event, 0};
      if (::poll(&one, 1, static_cast<int>(kPollInterval.count())) > 0) return true;
    }
    return false;
  }

  // Returns the bytes received, or fewer than `size` if the connection ends or is too slow.
  std::string read(size_t size) {
    std::string text(size, '\0');
    size_t num_received = 0;
    while (num_received < size && wait_for(POLLIN)) {
      const ssize_t got = ::recv(socket_.get(), text.data() + num_received, size - num_received, 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
      num_received += static_cast<size_t>(std::max<ssize_t>(got, 0));
    }
    text.resize(num_received);
    return text;
  }

  FileDescriptor socket_;
  SuspendAwareTimer& time_;
  std::chrono::milliseconds end_;
  int error_;
};

FileDescriptor connect_to(const std::string& where, const PairOptions& options) {
  const size_t space = where.find(' ');
  const auto port = parse_number<uint16_t>(where.substr(std::min(where.size(), space + 1)));
  if (space == std::string::npos || !port) throw Error("invalid address '{}'", shortened(where));
  const Addresses found = resolve_master(where.substr(0, space), *port, SOCK_STREAM);
  std::string reason;
  for (SuspendAwareTimer time; time.elapsed() < options.timeout;
       std::this_thread::sleep_for(kPause)) {
    ConnectAttempt attempt(*found, time, options.timeout);
    reason = attempt.failure_reason();
    if (!reason.empty()) continue;
    if (attempt.handshake(options)) return attempt.release_socket();
    reason = "the process there is not the other rank, or does not have the run's secret";
  }
  throw Error("cannot connect to {}: {}", where, reason);
}

}  // namespace

FileDescriptor connect_pair(c10d::Store& store, int rank, const PairOptions& options) {
  if (rank == 0) {
    PairListener listener(options);
    set_text(store, kKey, listener.name());
    return listener.wait();
  }
  return connect_to(get_text(store, kKey), options);
}

}  // namespace zeroth::comm
