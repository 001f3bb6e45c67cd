// The ranks of a job, wherever they run, as whoever runs the job sees them (job_runner.h). All
// callbacks run in the io_context's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/run/job_state_machine.h"
#include "launcher/run/rank_stream.h"

namespace zeroth::launcher {

// Who is told of them. Ranks have their numbers in the whole job.
class RanksListener {
 public:
  virtual ~RanksListener() = default;

  virtual void on_ranks_polled(const RanksPolled& seen) = 0;
  // A process that starts ranks was sent this signal, which means the job.
  virtual void on_signal(int signal) = 0;
  virtual void on_warning(const std::string& text) = 0;
  // Where a rank's standard output, or error, goes: lives as long as this.
  virtual LineSink& line_sink(int rank, bool error) = 0;
};

class JobRanks {
 public:
  virtual ~JobRanks() = default;

  // To all that run, and what they started in their groups. Where the process that was started as a
  // rank neither catches nor blocks SIGHUP, its group gets SIGTERM in its place, for which it may
  // save.
  virtual void signal(int signum) = 0;
  // This process was signalled from outside: those that start ranks elsewhere may be, too, which
  // means the same.
  virtual void record_signal() {}
  // Those that are stopped, as last seen.
  virtual std::vector<SuspendedRank> find_suspended() const = 0;
  // Stops those that run; lets those go on that it has stopped.
  virtual void suspend() = 0;
  virtual void resume() = 0;
  // When no rank is left: ends what they left behind and hands out what they printed; then calls
  // back, once.
  virtual void finish(std::function<void()> done) = 0;
  // Processes that the kernel ended for want of memory, and that no ending has named yet; empty
  // where nothing counts them.
  virtual std::optional<int64_t> read_new_oom_kills() = 0;
};

}  // namespace zeroth::launcher
