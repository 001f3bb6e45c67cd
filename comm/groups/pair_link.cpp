#include "comm/groups/pair_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

// The header before the bytes of each tensor, in memory layout: the ranks of a run have one
// architecture.
struct Header {
  uint64_t sequence;
  uint64_t bytes;
};

template <typename Value>
void set(int fd, int level, int option, const Value& value) {
  if (::setsockopt(fd, level, option, &value, sizeof(value)) != 0)
    throw Error("cannot set up a connection between two ranks: {}", system_reason(errno));
}

// A node that vanishes silently (power, cable) resets no connection. TCP keepalive asks its kernel
// whether it is alive, so that the wait ends after a minute, and not only with the time limit of a
// collective. That limit cannot be as short: a rank that computes, or is suspended, sends nothing
// for long, but its kernel answers. TCP_USER_TIMEOUT is not set, as it would also end the
// connection to a rank that does not read for as long: with bytes in flight the limit of the
// collective applies.
constexpr int kKeepAliveIdleSeconds = 30;
constexpr int kKeepAliveIntervalSeconds = 10;
constexpr int kMaxProbes = 3;

// Sets socket options, with short timeouts between which the time limit is checked.
void set_up(int fd) {
  constexpr int kYes = 1;
  set(fd, IPPROTO_TCP, TCP_NODELAY, kYes);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, kYes);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, kMaxProbes);
  const timeval poll_interval{0, std::chrono::microseconds(kPollInterval).count()};
  set(fd, SOL_SOCKET, SO_RCVTIMEO, poll_interval);
  set(fd, SOL_SOCKET, SO_SNDTIMEO, poll_interval);
}

// An IdleTimeout is the remaining time in which some byte has to move.
class IdleTimeout {
 public:
  explicit IdleTimeout(std::chrono::milliseconds limit) : limit_(limit) {}

  // Observes `moved`, the result of a system call. Throws an Error if no more bytes will move.
  void observe(ssize_t moved) {
    if (moved > 0) {
      time_ = SuspendAwareTimer();
    } else if (moved == 0) {
      throw Error("the connection ended");
    } else if (errno == EAGAIN || errno == EINTR) {
      const auto waited = time_.elapsed();
      if (waited >= limit_) throw Error("{}", timeout_message(waited));
    } else {
      throw Error("the connection is lost: {}", system_reason(errno));
    }
  }

 private:
  std::chrono::milliseconds limit_;
  SuspendAwareTimer time_;
};

void receive_all(int fd, void* into, size_t size, IdleTimeout& idle_timeout) {
  for (char* at = static_cast<char*>(into); size > 0;) {
    const ssize_t got = ::recv(fd, at, size, MSG_WAITALL);
    idle_timeout.observe(got);
    if (got < 0) continue;
    at += got;
    size -= static_cast<size_t>(got);
  }
}

void send_all(int fd, std::array<iovec, 2> parts, IdleTimeout& idle_timeout) {
  for (size_t part = 0; part < parts.size();) {
    msghdr message{};
    message.msg_iov = &parts[part];
    message.msg_iovlen = parts.size() - part;
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
    idle_timeout.observe(sent);
    for (size_t left = sent < 0 ? 0 : static_cast<size_t>(sent); part < parts.size(); ++part) {
      const size_t of_part = std::min(left, parts[part].iov_len);
      parts[part].iov_base = static_cast<char*>(parts[part].iov_base) + of_part;
      parts[part].iov_len -= of_part;
      left -= of_part;
      if (parts[part].iov_len > 0) break;
    }
  }
}

}  // namespace

class PairLink::SendRecv final : public c10d::Work {
 public:
  SendRecv(torch::Tensor out, torch::Tensor in) : out_(std::move(out)), in_(std::move(in)) {}

  const torch::Tensor& out() const { return out_; }
  const torch::Tensor& in() const { return in_; }

  // Completes the send or the receive; the operation ends with the second of them.
  void complete_half() {
    if (--halves_left_ == 0) ended_->markCompleted();
  }
  void fail(const std::exception_ptr& why) { ended_->setErrorIfNeeded(why); }

  bool isCompleted() override { return ended_->completed(); }
  bool wait(std::chrono::milliseconds /*the link's holds*/) override {
    ended_->waitAndThrow();
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return ended_; }

 private:
  torch::Tensor out_, in_;
  std::atomic<int> halves_left_{2};
  c10::intrusive_ptr<c10::ivalue::Future> ended_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
};

PairLink::PairLink(FileDescriptor socket, std::chrono::milliseconds limit)
    : socket_(std::move(socket)), limit_(limit) {
  set_up(socket_.get());
  send_thread_ = std::thread([this] { serve(to_send_, &PairLink::send); });
  try {
    receive_thread_ = std::thread([this] { serve(to_receive_, &PairLink::receive); });
  } catch (...) {  // a system limit on threads
    fail(std::current_exception());
    send_thread_.join();
    throw;
  }
}

PairLink::~PairLink() {
  fail(std::make_exception_ptr(Error("the group of this rank was closed")));
  send_thread_.join();
  receive_thread_.join();
}

c10::intrusive_ptr<c10d::Work> PairLink::send_recv(const torch::Tensor& out,
                                                   const torch::Tensor& in) {
  ZEROTH_CHECK(out.is_contiguous() && in.is_contiguous(), "{} and {} bytes", out.nbytes(),
               in.nbytes());
  auto send_recv = c10::make_intrusive<SendRecv>(out, in);
  {
    const std::lock_guard lock(mutex_);
    if (failed_) {
      send_recv->fail(failed_);
      return send_recv;
    }
    to_send_.push_back(send_recv);
    to_receive_.push_back(send_recv);
  }
  changed_.notify_all();
  return send_recv;
}

void PairLink::serve(Queue& queue, void (PairLink::*move)(SendRecv&, uint64_t)) {
  for (uint64_t sequence = 0;; ++sequence) {
    c10::intrusive_ptr<SendRecv> next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return failed_ || !queue.empty(); });
      if (failed_) return;
      next = queue.front();
    }
    try {
      (this->*move)(*next, sequence);
    } catch (const std::exception&) {
      return fail(std::current_exception());
    }
    {
      const std::lock_guard lock(mutex_);
      if (failed_) return;
      queue.pop_front();
    }
    next->complete_half();
  }
}

void PairLink::send(SendRecv& send_recv, uint64_t sequence) {
  Header header{sequence, send_recv.in().nbytes()};
  IdleTimeout idle_timeout(limit_);
  send_all(
      socket_.get(),
      {iovec{&header, sizeof(header)}, iovec{send_recv.in().data_ptr(), send_recv.in().nbytes()}},
      idle_timeout);
}

void PairLink::receive(SendRecv& send_recv, uint64_t sequence) {
  Header header{};
  IdleTimeout idle_timeout(limit_);
  receive_all(socket_.get(), &header, sizeof(header), idle_timeout);
  if (header.sequence != sequence || header.bytes != send_recv.out().nbytes())
    throw Error("the other rank sent {} bytes as message {}, expected {} bytes as message {}",
                header.bytes, header.sequence, send_recv.out().nbytes(), sequence);
  receive_all(socket_.get(), send_recv.out().data_ptr(), header.bytes, idle_timeout);
}

// Fails all operations; the first reason is the one that counts.
void PairLink::fail(const std::exception_ptr& why) {
  Queue all;
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    failed_ = why;
    all = to_send_;
    all.insert(all.end(), to_receive_.begin(), to_receive_.end());
  }
  ::shutdown(socket_.get(), SHUT_RDWR);  // the threads wake up
  changed_.notify_all();
  for (const auto& send_recv : all) send_recv->fail(why);
}

}  // namespace zeroth::comm
