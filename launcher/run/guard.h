// A guard process that ends the job's processes when the launcher itself is killed.
#pragma once

#include <sys/types.h>

#include <string>

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

}  // namespace zeroth::launcher
