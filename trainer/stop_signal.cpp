#include "trainer/stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace zeroth::trainer {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
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
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC);
  end_ = ::eventfd(0, EFD_CLOEXEC);
  if (signals_ < 0 || end_ < 0) throw Error("no signalfd: {}", std::strerror(errno));
  watcher_ = std::jthread([this] { watch(); });
}

StopSignal::~StopSignal() {
  const uint64_t one = 1;
  if (::write(end_, &one, sizeof(one)) == sizeof(one)) watcher_.join();
  ::close(signals_);
  ::close(end_);
}

void StopSignal::watch() {
  signalfd_siginfo info{};
  if (!first_is_ready(signals_, end_)) return;
  if (::read(signals_, &info, sizeof(info)) != sizeof(info)) return;
  number_ = static_cast<int>(info.ssi_signo);
  // Whatever comes next reaches this thread and does what it does to any process.
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  if (!heeding_) ::kill(::getpid(), number_);
  first_is_ready(end_, end_);
}

}  // namespace zeroth::trainer
