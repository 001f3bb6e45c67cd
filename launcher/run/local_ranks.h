// The ranks that are processes of this machine, and a job of them alone from start to end.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "launcher/run/guard.h"
#include "launcher/run/job_ranks.h"
#include "launcher/run/job_runner.h"
#include "launcher/run/oom_watch.h"
#include "launcher/run/rank_plan.h"
#include "launcher/run/rank_process.h"
#include "launcher/run/suspendable_timer.h"

namespace zeroth::launcher {

struct LocalRanksOptions {
  std::filesystem::path system_root = "/";      // see oom_watch.h
  std::chrono::milliseconds output_grace{500};  // for output that a process holds open
};

// LocalRanks owns the rank processes. Ranks die with the calling thread, which must be the main
// thread; their descendants die with the calling process, whose children must all belong to the
// job. The destructor ends them too.
class LocalRanks final : public JobRanks {
 public:
  LocalRanks(boost::asio::io_context& io, const LocalRanksOptions& options);
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;
  ~LocalRanks() override { end_processes(); }

  // Starts the ranks; must be called once. Throws ProgramError or Error if a rank cannot be
  // started.
  void start(const Program& program, const std::vector<RankSpec>& specs, RanksListener& listener);

  void signal(int signum) override;
  std::vector<SuspendedRank> find_suspended() const override;
  void suspend() override;
  void resume() override;
  void finish(std::function<void()> done) override;
  std::optional<int64_t> read_new_oom_kills() override { return oom_.read_new_kills(); }

 private:
  struct Rank {
    int index;
    RankProcess process;
    std::vector<std::unique_ptr<RankStream>> streams = {};  // of its output and its errors

    bool is_running() const { return process.pid() > 0; }
  };

  void start_rank(const Program& program, const RankSpec& spec);
  void wait_for_children();
  void poll_children();
  RankExit collect_exit(Rank& rank, ExitStatus exit_status);
  void end_processes();
  void close_output();
  void finish_output();

  boost::asio::io_context& io_;
  LocalRanksOptions options_;
  std::optional<Guard> guard_;
  OomWatch oom_;
  boost::asio::signal_set children_;
  SuspendableTimer output_timer_;
  RanksListener* listener_ = nullptr;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<const RankProcess*> suspended_;
  bool killed_ = false;  // ranks that end from now on were killed by the launcher
  std::function<void()> on_finished_;
};

// Starts all ranks, passes on their output, and returns when no rank or descendant is left. A rank
// that fails ends the others (SIGTERM at once, SIGKILL after failure_grace, which also ends a
// suspended one) and determines the status: its exit code, or 128 + signal. SIGINT, SIGTERM and
// SIGHUP are forwarded (JobRanks::signal), and the status is 128 + signal unless all ranks still
// end with 0; a second signal, and any after a rank has failed, kills. A rank that fails meanwhile
// reduces signal_grace to failure_grace. SIGTSTP (Ctrl-Z) stops the ranks with the launcher until
// it is continued; time limits do not count this time. Ranks suspended by another process are
// reported. A standard output that fails or has lost its reader, and a rank log that cannot be
// written, are given up with a warning, and the job continues; with output_required a lost standard
// output gives status 1, or SIGPIPE's without a message. Ranks also die with the calling thread,
// which must be the main thread; their descendants die with the calling process, whose children
// must all belong to the job. Throws ProgramError or Error if a rank cannot be started; then no
// rank is left either. `options` is without the numbers of this job's ranks, which are set here;
// its world_size may be 0: these are all ranks.
JobOutcome supervise(const Program& program, const std::vector<RankSpec>& ranks,
                     JobRunnerOptions options, const LocalRanksOptions& local_options = {});

}  // namespace zeroth::launcher
