#include "trainer/stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "base/end_signals.h"
#include "base/error.h"
#include "base/process_limits.h"
#include "comm/agreement.h"
#include "trainer/failure.h"

namespace zeroth::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSameSignal{250};

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : end_signals()) sigaddset(&set, signal);
  return set;
}

// Which of the two descriptors can be read; blocks until one can.
bool first_is_ready(int first, int second) {
  std::array<pollfd, 2> both = {{{first, POLLIN, 0}, {second, POLLIN, 0}}};
  while (::poll(both.data(), both.size(), -1) < 0 && errno == EINTR) {
  }
  return both[1].revents == 0;
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC));
  end_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  if (signals_.get() < 0 || end_.get() < 0) throw Error("no signalfd: {}", system_reason(errno));
  watcher_ = std::jthread([this] { watch(); });
}

StopSignal::~StopSignal() {
  const uint64_t one = 1;
  if (::write(end_.get(), &one, sizeof(one)) == sizeof(one)) watcher_.join();
}

// Waits for the next signal; 0: the end of the watcher came first.
int StopSignal::next() const {
  signalfd_siginfo info{};
  if (!first_is_ready(signals_.get(), end_.get())) return 0;
  const ssize_t size = ::read(signals_.get(), &info, sizeof(info));
  return size == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

void StopSignal::watch() {
  const int first = next();
  if (first == 0) return;
  if (!heeding_) {
    const sigset_t set = stop_signals();
    ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ::kill(::getpid(), first);  // does what it does to any process
  }
  const auto since = Clock::now();
  came_ = since;
  number_ = first;
  for (int second = next(); second != 0; second = next()) {
    if (second != first || Clock::now() >= since + kSameSignal) std::_Exit(kSignalCode + second);
  }
}

double StopSignal::seconds_since() const {
  if (number() == 0) return 0;
  return std::chrono::duration<double>(Clock::now() - came_.load()).count();
}

int StopSignal::of_all_ranks(const comm::Mesh& mesh) const {
  return static_cast<int>(comm::greatest_over_ranks(number(), "stop signal", mesh));
}

}  // namespace zeroth::trainer
