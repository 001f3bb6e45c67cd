// The end of a job's processes: a guard process ends them when the launcher itself is killed, and
// the launcher ends those that ranks started and left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/machine/file_descriptor.h"

namespace zeroth::launcher {

// A Guard owns a small process that waits for the end of the launcher. If the launcher ends without
// running the destructor (SIGKILL), the process kills every process with the mark in its
// environment: also the ranks' descendants, in any session.
class Guard {
 public:
  static constexpr const char* kVariable = "ZEROTH_JOB";

  Guard();  // throws Error
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();  // stops the guard process and reaps it

  // Starts a new guard process if the current one has exited, which only an outside process can
  // cause. Must be called when a child has ended. The number of restarts is limited. Returns the
  // message for the user; empty if the guard is running.
  std::string restart_if_exited();

  // Returns the pid of the guard process; -1: there is none.
  pid_t pid() const { return pid_; }

  // Returns the value of kVariable in each rank's environment; unique to this job.
  const std::string& mark() const { return mark_; }

 private:
  void start();

  std::string mark_;
  int restarts_left_ = 10;
  FileDescriptor pipe_;
  pid_t pid_ = -1;
};

// Sends SIGKILL to every process of this user whose environment has kVariable=mark, until a search
// finds none. Returns the number killed.
int kill_marked(const std::string& mark);

// Makes descendants whose parent ends children of this process, instead of init, from now on.
// Throws Error.
void adopt_orphans();

// Reaps dead children that are not in `ranks`. Never blocks.
void reap_orphans(const std::vector<pid_t>& ranks);

// Sends SIGKILL to every child of this process, and to children that it adopts thereby, until none
// is left or `limit` has passed. Returns whether none is left.
bool kill_orphans(std::chrono::milliseconds limit);

}  // namespace zeroth::launcher
