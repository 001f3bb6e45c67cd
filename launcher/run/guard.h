// A second process that ends the job's processes when the launcher itself is killed.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/file_descriptor.h"

namespace zeroth::launcher {

// While this lives, a small process waits for the end of the launcher. If that ends without this
// destructor (SIGKILL), it kills whatever carries the mark in its environment: the ranks' own
// descendants too, in whatever session.
class Guard {
 public:
  static constexpr const char* kVariable = "ZEROTH_JOB";

  Guard();  // throws Error
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();  // sends it home and reaps it

  // To be called when a child has ended. Where it was that process, which only somebody else can
  // have brought about, another one takes its place; not for ever, if each is ended. Returns what
  // to tell the user about it; empty where it lives.
  std::string restart_if_exited();

  // The process that waits; -1: there is none.
  pid_t pid() const { return pid_; }

  // Value of kVariable in the environment of each rank; no other job has the same.
  const std::string& mark() const { return mark_; }

 private:
  void start();

  std::string mark_;
  int restarts_left_ = 10;
  FileDescriptor pipe_;
  pid_t pid_ = -1;
};

// SIGKILL to every process of this user whose environment has kVariable=mark, until a search finds
// none. Returns how many.
int kill_marked(const std::string& mark);

}  // namespace zeroth::launcher
