// The shell of a Job: tells it what happens to its ranks and to the launcher, and does what it
// says.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <memory>
#include <string>
#include <vector>

#include "launcher/run/console_lines.h"
#include "launcher/run/job.h"
#include "launcher/run/output.h"
#include "launcher/run/ranks.h"
#include "launcher/run/running_timer.h"

namespace zeroth::launcher {

struct JobShellOptions {
  JobOptions job = {};
  int first_rank = 0;                 // of those that this job has
  int num_ranks = 0;                  // that this job has, from that one on
  int world_size = 0;                 // of all that run together
  bool bare_lines = false;            // without the ranks' numbers before them
  bool progress_on_terminal = false;  // rank 0 redraws its progress line with '\r'
  std::vector<int> rank_logs = {};    // an open file per rank, not owned; empty: none
};

class JobShell final : public RanksListener {
 public:
  // From now on signals to this process mean the job.
  JobShell(boost::asio::io_context& io, Ranks& ranks, const JobShellOptions& options);
  JobShell(const JobShell&) = delete;
  JobShell& operator=(const JobShell&) = delete;

  // When the ranks have been started, which may have told of endings already: runs `io` until the
  // job is over.
  JobOutcome run();

  // See job.h.
  void regroup(const std::string& why) { tell_job(Regroup{why}); }

  // A line of the launcher's own.
  void say(const std::string& text) { carry_out(Say{text}); }

  void on_look(const RanksLookedAt& seen) override;
  void on_signal(int signal) override { tell_job(Signalled{signal}); }
  void on_warning(const std::string& text) override { say("warning: " + text); }
  LineTarget& lines_of(int rank, bool error) override;

 private:
  struct RankOutput {
    Tail tail = {};
    std::unique_ptr<OutputSink> log = {};
    std::unique_ptr<ConsoleLines> out = {};
    std::unique_ptr<ConsoleLines> err = {};
  };

  std::unique_ptr<RankOutput> make_output(int index);
  void wait_for_signals();
  void suspend();

  void tell_job(const JobEvent& event);
  void carry_out(const Say& action);
  void carry_out(const SignalRanks& action);
  void carry_out(const Grant& action);
  void carry_out(const LookForStopped& action);
  void carry_out(const Finish& action);
  void carry_out(const Leave& action);

  void end_output();
  Death with_global_rank(const Death& death) const;
  const Tail& tail_of(const Death& death) const;
  std::string with_last_words(const Death& death);
  void stop();

  // A signal may be on its way through `io` that runs on when this has ended.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  boost::asio::io_context& io_;
  Ranks& ranks_;
  JobShellOptions options_;
  Job job_;
  boost::asio::signal_set signals_;
  RunningTimer grace_timer_;
  RunningTimer stopped_timer_;
  Console console_;
  bool over_ = false;
  std::vector<std::unique_ptr<RankOutput>> outputs_;
};

}  // namespace zeroth::launcher
