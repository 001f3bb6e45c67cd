// SIGTERM, SIGINT and SIGHUP, which is left alone where it is ignored, as a request: finish the
// step, save, end. The second one ends the process at once, wherever it is: what was saved before
// stays whole.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "base/file_descriptor.h"
#include "comm/mesh.h"

namespace zeroth::trainer {

class StopSignal {
 public:
  // Takes these signals from the calling thread and from those it starts later: to be made before
  // any other thread. Until heed() they still end the process.
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // From now on the first signal is only remembered, and the second one exits with kSignalCode and
  // its number. The same one again within a quarter of a second is no second one: timeout(1) and
  // others send theirs to the process and to its group.
  void heed() { heeding_ = true; }
  // The one that came, or 0: none came. From any thread.
  int number() const { return number_; }
  // Since it came to this rank; 0 where none has.
  double seconds_since() const;
  // That of any rank; 0 where none has come to one. Collective.
  int of_all_ranks(const comm::Mesh& mesh) const;

 private:
  int next() const;
  void watch();

  std::atomic<bool> heeding_ = false;
  std::atomic<int> number_ = 0;
  std::atomic<std::chrono::steady_clock::time_point> came_{};  // set before the number
  FileDescriptor signals_;                                     // a signalfd
  FileDescriptor end_;                                         // an eventfd that ends the watcher
  std::jthread watcher_;
};

}  // namespace zeroth::trainer
