#include "trainer/stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/machine/signals.h"
#include "comm/cpu_collectives.h"
#include "trainer/failure.h"

namespace zeroth::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSameSignal{250};

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : termination_signals()) sigaddset(&set, signal);
  return set;
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_fd_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC));
  shutdown_event_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  if (signal_fd_.get() < 0 || shutdown_event_.get() < 0)
    throw Error("cannot create a signalfd: {}", system_reason(errno));
  watcher_ = std::jthread([this] { watch(); });
}

StopSignal::~StopSignal() {
  const uint64_t one = 1;
  if (::write(shutdown_event_.get(), &one, sizeof(one)) == sizeof(one)) watcher_.join();
}

// Blocks until the next signal; returns 0 if the watcher is stopped first.
int StopSignal::wait_for_signal() const {
  std::array<pollfd, 2> both = {
      {{signal_fd_.get(), POLLIN, 0}, {shutdown_event_.get(), POLLIN, 0}}};
  while (::poll(both.data(), both.size(), -1) < 0 && errno == EINTR) {
  }
  if (both[1].revents != 0) return 0;
  signalfd_siginfo info{};
  const ssize_t size = ::read(signal_fd_.get(), &info, sizeof(info));
  return size == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

void StopSignal::watch() {
  const int first = wait_for_signal();
  if (first == 0) return;
  if (!enabled_) {
    const sigset_t set = stop_signals();
    ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ::kill(::getpid(), first);  // has its default effect
  }
  const auto since = Clock::now();
  received_at_ = since;
  signal_ = first;
  for (int second = wait_for_signal(); second != 0; second = wait_for_signal()) {
    if (second != first || Clock::now() >= since + kSameSignal) std::_Exit(kSignalCode + second);
  }
}

double StopSignal::seconds_since_signal() const {
  if (signal() == 0) return 0;
  return std::chrono::duration<double>(Clock::now() - received_at_.load()).count();
}

int StopSignal::signal_of_any_rank(const comm::DeviceMesh& mesh) const {
  return static_cast<int>(comm::max_over_ranks(signal(), "stop signal", mesh));
}

}  // namespace zeroth::trainer
