// SIGTERM, SIGINT and SIGHUP (unless it is ignored) as a request to finish the step, save and exit.
// The second signal ends the process at once, in any state: what was saved before stays intact.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "base/machine/file_descriptor.h"
#include "comm/device_mesh.h"

namespace zeroth::trainer {

class StopSignal {
 public:
  // Blocks these signals in the calling thread and in those it starts later; must be called before
  // any other thread starts. The signals still end the process until enable().
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Makes the first signal a request only, and the second one an exit with kSignalCode plus its
  // number. A repetition of the same signal within a quarter of a second is ignored: timeout(1) and
  // others signal both the process and its group.
  void enable() { enabled_ = true; }
  // Returns the received signal, or 0. Can be called from any thread.
  int signal() const { return signal_; }
  // Returns the time since this rank received it; 0 if it has not.
  double seconds_since_signal() const;
  // Returns the signal of any rank; 0 if no rank has received one. Collective.
  int signal_of_any_rank(const comm::DeviceMesh& mesh) const;

 private:
  int wait_for_signal() const;
  void watch();

  std::atomic<bool> enabled_ = false;
  std::atomic<int> signal_ = 0;
  std::atomic<std::chrono::steady_clock::time_point> received_at_{};  // set before signal_
  FileDescriptor signal_fd_;                                          // a signalfd
  FileDescriptor shutdown_event_;  // an eventfd that ends the watcher
  std::jthread watcher_;
};

}  // namespace zeroth::trainer
