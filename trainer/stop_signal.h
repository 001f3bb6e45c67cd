// SIGTERM, SIGINT and SIGHUP, which is left alone where it is ignored, as a request: finish the
// step, save, end. The second one ends the process at once, wherever it is: what was saved before
// stays whole.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "base/file_descriptor.h"
#include "comm/device_mesh.h"

namespace zeroth::trainer {

class StopSignal {
 public:
  // Takes these signals from the calling thread and from those it starts later: to be made before
  // any other thread. Until enable() they still end the process.
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // From now on the first signal is only remembered, and the second one exits with kSignalCode and
  // its number. The same one again within a quarter of a second is no second one: timeout(1) and
  // others send theirs to the process and to its group.
  void enable() { enabled_ = true; }
  // The one that came, or 0: none came. From any thread.
  int signal() const { return signal_; }
  // Since it came to this rank; 0 where none has.
  double seconds_since_signal() const;
  // That of any rank; 0 where none has come to one. Collective.
  int signal_of_any_rank(const comm::DeviceMesh& mesh) const;

 private:
  int wait_for_signal() const;
  void watch();

  std::atomic<bool> enabled_ = false;
  std::atomic<int> signal_ = 0;
  std::atomic<std::chrono::steady_clock::time_point> received_at_{};  // set before the number
  FileDescriptor signal_fd_;                                          // a signalfd
  FileDescriptor shutdown_event_;  // an eventfd that ends the watcher
  std::jthread watcher_;
};

}  // namespace zeroth::trainer
