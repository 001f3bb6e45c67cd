#include "comm/connect_pair.h"

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
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/process_limits.h"
#include "base/random_bytes.h"
#include "base/sha256.h"
#include "base/units.h"
#include "comm/call.h"
#include "comm/host_address.h"
#include "comm/rendezvous.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

//   listener: nonce            other: nonce, proof            listener: proof
// A proof is an HMAC over its maker's role, the pair's name and both nonces.
constexpr size_t kNonceBytes = 32, kProofBytes = 32, kAnswerBytes = kNonceBytes + kProofBytes;
constexpr std::chrono::seconds kHandshake{5};
constexpr std::chrono::milliseconds kPause{20};
constexpr size_t kMostStrangers = 64;  // one more ends the oldest
constexpr const char* kKey = "pair";

class Proofs {
 public:
  explicit Proofs(const PairOptions& options) : key_(options.secret), name_(options.name) {}

  std::string of_listener(std::string_view its_nonce, std::string_view others) const {
    return of("listener", its_nonce, others);
  }
  std::string of_other(std::string_view listeners_nonce, std::string_view own) const {
    return of("other", listeners_nonce, own);
  }

 private:
  std::string of(std::string_view role, std::string_view first, std::string_view second) const {
    const std::string label = fmt::format("zeroth pair {} {}\n", role, name_);
    return std::string(bytes_of(key_.digest(label, first, second)));
  }

  HmacKey key_;
  std::string name_;
};

void set_blocking(int fd, bool blocks) {
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

bool send_text(int fd, std::string_view text) {
  return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// "10.0.0.1 4711"
std::string name_of(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, host.data(), host.size(), port.data(),
                    port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    throw Error("the address of a socket is not known: {}", system_reason(errno));
  return fmt::format("{} {}", host.data(), port.data());
}

// Listens until the other rank has come.
class Door {
 public:
  explicit Door(const PairOptions& options)
      : options_(options), proofs_(options), door_(listen_at(options.address, 0)) {
    set_blocking(door_.get(), false);
  }
  std::string name() const { return name_of(door_.get()); }

  FileDescriptor wait() {
    for (RunningTime time; time.passed() < options_.timeout;) {
      poll_all();
      for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
        if (const auto known = judge(*stranger)) {
          if (*known) return std::move(stranger->socket);
          stranger = strangers_.erase(stranger);
        } else {
          ++stranger;
        }
      }
      welcome();
    }
    throw Error("the other rank did not connect: {}", time_limit_text(options_.timeout));
  }

 private:
  struct Stranger {
    FileDescriptor socket;
    std::string nonce, said;
    RunningTime time;
  };

  void poll_all() const {
    std::vector<pollfd> all = {{door_.get(), POLLIN, 0}};
    for (const Stranger& stranger : strangers_) all.push_back({stranger.socket.get(), POLLIN, 0});
    ::poll(all.data(), all.size(), static_cast<int>(kGlance.count()));
  }

  // Also those who go before they are welcome.
  void welcome() {
    for (;;) {
      FileDescriptor socket(::accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.get() < 0) {
        if (errno != EAGAIN) std::this_thread::sleep_for(kPause);  // no descriptor is left, say
        return;
      }
      std::string nonce = random_bytes(kNonceBytes);
      if (!send_text(socket.get(), nonce)) continue;
      strangers_.push_back({std::move(socket), std::move(nonce), "", {}});
      if (strangers_.size() > kMostStrangers) strangers_.pop_front();
    }
  }

  // Whether it is the other rank; empty: it is not known yet.
  std::optional<bool> judge(Stranger& stranger) const {
    std::array<char, kAnswerBytes> bytes{};
    const int fd = stranger.socket.get();
    const ssize_t got = ::recv(fd, bytes.data(), kAnswerBytes - stranger.said.size(), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got > 0) stranger.said.append(bytes.data(), static_cast<size_t>(got));
    if (stranger.said.size() < kAnswerBytes)
      return stranger.time.passed() < kHandshake ? std::nullopt : std::optional(false);
    const std::string_view nonce = std::string_view(stranger.said).substr(0, kNonceBytes);
    const std::string_view proof = std::string_view(stranger.said).substr(kNonceBytes);
    if (!same_secret(proof, proofs_.of_other(stranger.nonce, nonce))) return false;
    if (!send_text(fd, proofs_.of_listener(stranger.nonce, nonce))) return false;
    set_blocking(fd, true);
    return true;
  }

  const PairOptions& options_;
  Proofs proofs_;
  FileDescriptor door_;
  std::list<Stranger> strangers_;  // the oldest first
};

// One attempt to connect, which takes kHandshake at most and has an end when `time`, the caller's,
// is at `limit`. It waits in glances, so that `time` sees all of it.
class Attempt {
 public:
  Attempt(const addrinfo& address, RunningTime& time, std::chrono::milliseconds limit)
      : socket_(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
        time_(time),
        end_(std::min<std::chrono::milliseconds>(time.passed() + kHandshake, limit)),
        error_(connect(address)) {}

  // Empty: connected.
  std::string why_not() const { return error_ == 0 ? "" : system_reason(error_); }

  // Whether each knows that the other is the rank that it looks for.
  bool shake_hands(const Proofs& proofs) {
    const std::string theirs = read(kNonceBytes), own = random_bytes(kNonceBytes);
    return theirs.size() == kNonceBytes &&
           send_text(socket_.get(), own + proofs.of_other(theirs, own)) &&
           same_secret(read(kProofBytes), proofs.of_listener(theirs, own));
  }

  FileDescriptor take() {
    set_blocking(socket_.get(), true);
    return std::move(socket_);
  }

 private:
  // 0, or an error of the system's.
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
    while (time_.passed() < end_) {
      pollfd one{socket_.get(), event, 0};
      if (::poll(&one, 1, static_cast<int>(kGlance.count())) > 0) return true;
    }
    return false;
  }

  // The bytes that come, or fewer when it ends or takes too long.
  std::string read(size_t size) {
    std::string text(size, '\0');
    size_t come = 0;
    while (come < size && wait_for(POLLIN)) {
      const ssize_t got = ::recv(socket_.get(), text.data() + come, size - come, 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
      come += static_cast<size_t>(std::max<ssize_t>(got, 0));
    }
    text.resize(come);
    return text;
  }

  FileDescriptor socket_;
  RunningTime& time_;
  std::chrono::milliseconds end_;
  int error_;
};

FileDescriptor connect_to(const std::string& where, const PairOptions& options) {
  const size_t space = where.find(' ');
  const auto port = parse_number<uint16_t>(where.substr(std::min(where.size(), space + 1)));
  if (space == std::string::npos || !port) throw Error("'{}' is no address", shortened(where));
  const Addresses found = resolve_master(where.substr(0, space), *port, SOCK_STREAM);
  const Proofs proofs(options);
  std::string reason;
  for (RunningTime time; time.passed() < options.timeout; std::this_thread::sleep_for(kPause)) {
    Attempt attempt(*found, time, options.timeout);
    reason = attempt.why_not();
    if (!reason.empty()) continue;
    if (attempt.shake_hands(proofs)) return attempt.take();
    reason = "what answers there is not the other rank, or does not know the run's secret";
  }
  throw Error("cannot connect to {}: {}", where, reason);
}

}  // namespace

FileDescriptor connect_pair(c10d::Store& store, int rank, const PairOptions& options) {
  if (rank == 0) {
    Door door(options);
    const std::string name = door.name();
    store.set(kKey, std::vector<uint8_t>(name.begin(), name.end()));
    return door.wait();
  }
  const std::vector<uint8_t> where = store.get(kKey);
  return connect_to({where.begin(), where.end()}, options);
}

}  // namespace zeroth::comm
