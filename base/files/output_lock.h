// Exclusive access to an output: one run, and one restart attempt of it, may write there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/files/directory.h"

namespace zeroth {

// OutputInUse reports that another run writes to an output. That run may exit at any time, so a
// retry can succeed.
class OutputInUse : public Error {
 public:
  using Error::Error;
};

// OutputTakenOver reports that a later restart attempt of this run now writes to the output, so
// this process must publish nothing.
class OutputTakenOver : public Error {
 public:
  using Error::Error;
};

// An OutputGuard throws an OutputTakenOver if this process has lost the output. Callers invoke it
// as late as possible: after all data is written, just before the final rename. An empty guard
// means that no other process can write there.
using OutputGuard = std::function<void()>;

// OutputAttempt identifies the restart attempt of a run that a process belongs to, if its ranks can
// be started more than once.
struct OutputAttempt {
  std::string run;    // id of the run, equal in all of its attempts; empty: unknown
  int64_t index = 0;  // index of the attempt; later ones have larger indices
};

// An OutputLock holds a locked file beside the output, "out.zeroth-lock", which names its owner.
// The destructor removes the file. A file that a killed process leaves is unlocked and goes to the
// next run: the kernel releases the lock when the process exits.
//
// A process that is suspended, or whose machine was disconnected, does not exit and keeps its lock.
// The next restart attempt of its run must not wait for it. So the file also contains run and
// attempt, and a later attempt of the same run removes the file and creates its own. If the earlier
// process wakes up, it finds another file or none: it calls check() right before each change of the
// output. Nothing can guard the time between that check and the system calls that follow, since
// another machine cannot revoke such a call; only a checkpoint's commit has a second guard
// (checkpoint/owner.h). Other runs have another id and are rejected, whatever their attempt.
class OutputLock {
 public:
  // Throws an Error that names the process, its host and its start time if another process holds
  // the lock of `target`, unless that process belongs to an earlier attempt of the run of `mine`.
  // Changes nothing.
  static void require_free(const std::filesystem::path& target, const OutputAttempt& mine = {});

  // Acquires the lock and creates missing parent directories. Throws like require_free(), if the
  // file cannot be created, and if a later attempt has owned the output.
  explicit OutputLock(const std::filesystem::path& target, OutputAttempt mine = {});
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

  // Returns why another run would not notice this lock, or an empty text if it would.
  const std::string& warning() const { return warning_; }
  // Throws an OutputTakenOver that names the new owner if this process has lost the lock. Opens the
  // file by its name, so that a network file system asks its server. Never throws if the run is
  // unknown.
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
  std::string holder_;  // contents of the file while this process owns it
  FileDescriptor file_;
  std::string warning_;
};

}  // namespace zeroth
