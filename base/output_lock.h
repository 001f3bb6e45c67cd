// One run at a time for an output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/directory.h"

namespace zeroth {

// Which life of a run a process is of, where its ranks are started more than once.
struct OutputAttempt {
  std::string run;    // the same in all rounds of a run, and in no other one; empty: unknown
  int64_t index = 0;  // later attempts have larger ones
};

// A locked file beside the output, "out.zeroth-lock", which says who writes there. It goes with
// this object. What a kill leaves of it is locked by nobody, and the next run's: the lock is the
// kernel's and ends with its process.
//
// A process that is stopped, or whose machine was cut off, does not end and keeps its lock. The
// next round of its run must not wait for it: so the file also says run and round, and a later
// round of the same run removes it and makes its own. The one of before, should it wake up, finds
// another file in its place, or none: check(), which it asks right before it changes anything
// there. Between that question and the calls to the system that follow it nothing can be guarded,
// as another machine cannot take back such a call; what has a second guard is the commit of a
// checkpoint (checkpoint/owner.h). Other runs have another name and are refused, whatever their
// round.
class OutputLock {
 public:
  // Throws an Error when another process holds the lock of `target`, but for one of a round before
  // `mine`: with its number, its host and since when. Leaves everything as it is.
  static void require_free(const std::filesystem::path& target, const OutputAttempt& mine = {});

  // Makes the folders above it too. Throws as require_free(), when the file cannot be made, and
  // when a later round was here.
  explicit OutputLock(const std::filesystem::path& target, OutputAttempt mine = {});
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

  // Why another run would not notice this one; empty where it would.
  const std::string& warning() const { return warning_; }
  // Throws an OutputTakenOver that says by whom. Opens the file by its name, so that a
  // network's file system asks its server. Never where the run is unknown.
  void check() const;

 private:
  std::string path() const;
  bool open_file();
  bool try_lock();
  bool is_current() const;
  void write_holder();

  std::filesystem::path target_;
  OutputAttempt mine_;
  Directory directory_;
  std::string name_;
  std::string holder_;  // what the file says of this process
  FileDescriptor file_;
  std::string warning_;
};

}  // namespace zeroth
