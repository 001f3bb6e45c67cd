// Interfaces to the ranks of a job, wherever they run, for JobRunner (job_runner.h). All callbacks
// run in the io_context's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/run/job_state_machine.h"
#include "launcher/run/output.h"

namespace zeroth::launcher {

// RanksListener receives events of the ranks. Ranks are numbered within the whole job.
class RanksListener {
 public:
  virtual ~RanksListener() = default;

  virtual void on_ranks_polled(const RanksPolled& seen) = 0;
  // Called when a process that starts ranks received this signal, which applies to the whole job.
  virtual void on_signal(int signal) = 0;
  virtual void on_warning(const std::string& text) = 0;
  // Returns the sink of a rank's standard output or error. It lives as long as this object.
  virtual LineSink& line_sink(int rank, bool error) = 0;
};

class JobRanks {
 public:
  virtual ~JobRanks() = default;

  // Signals all running ranks and the processes in their groups. If a rank's own process neither
  // catches nor blocks SIGHUP, its group gets SIGTERM instead, on which it may save.
  virtual void signal(int signum) = 0;
  // Records that this process received a signal. Remote processes that start ranks may receive it,
  // too; it counts as one.
  virtual void record_signal() {}
  // Returns the ranks that are suspended, as last polled.
  virtual std::vector<SuspendedRank> find_suspended() const = 0;
  // suspend() stops the running ranks; resume() resumes those that it has stopped.
  virtual void suspend() = 0;
  virtual void resume() = 0;
  // Ends the remaining processes when no rank is left, and passes on their output; then calls back
  // once.
  virtual void finish(std::function<void()> done) = 0;
  // Returns the number of processes killed by the kernel's OOM killer that no rank's exit reason
  // mentions; empty if nothing counts them.
  virtual std::optional<int64_t> read_new_oom_kills() = 0;
};

}  // namespace zeroth::launcher
