// JobRunner connects a JobStateMachine to its ranks and to the launcher: it passes events to it and
// executes its actions.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <memory>
#include <string>
#include <vector>

#include "launcher/run/job_ranks.h"
#include "launcher/run/job_state_machine.h"
#include "launcher/run/output.h"
#include "launcher/run/suspendable_timer.h"

namespace zeroth::launcher {

struct JobRunnerOptions {
  JobOptions job = {};
  int first_rank = 0;                 // of this job's ranks
  int num_ranks = 0;                  // of this job
  int world_size = 0;                 // of all ranks that run together
  bool unprefixed_lines = false;      // without the ranks' numbers before them
  bool progress_on_terminal = false;  // rank 0 redraws its progress line with '\r'
  std::vector<int> rank_logs = {};    // an open file per rank, not owned; empty: none
};

class JobRunner final : public RanksListener {
 public:
  // Handles signals to this process, which apply to the job, from now on.
  JobRunner(boost::asio::io_context& io, JobRanks& ranks, const JobRunnerOptions& options);
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  // Runs `io` until the job is over. The ranks must have been started; they may have reported exits
  // already.
  JobOutcome run();

  // Requests a restart; see job_state_machine.h.
  void request_restart(const std::string& why) { handle_event(RestartRequest{why}); }

  // Logs a line of the launcher's own.
  void log(const std::string& text) { execute(LogLine{text}); }

  void on_ranks_polled(const RanksPolled& seen) override { handle_event(seen); }
  void on_signal(int signal) override { handle_event(SignalReceived{signal}); }
  void on_warning(const std::string& text) override { log("warning: " + text); }
  LineSink& line_sink(int rank, bool error) override;

 private:
  struct RankOutput {
    Tail tail = {};
    std::unique_ptr<OutputSink> log = {};
    std::unique_ptr<LineSink> out = {};
    std::unique_ptr<LineSink> err = {};
  };

  std::unique_ptr<RankOutput> make_output(int index);
  void wait_for_signals();
  void suspend();

  void handle_event(const JobEvent& event);
  void execute(const LogLine& action);
  void execute(const SignalRanks& action) { ranks_.signal(action.signal); }
  void execute(const StartGracePeriod& action);
  void execute(const PollSuspendedRanks& action);
  void execute(const DrainOutput& action);
  void execute(const ExitNow& /*action*/) { stop(); }

  void end_output();
  const RankOutput& output_of(int rank) const;
  std::string describe_with_tail(const RankFailure& failure);
  void stop();

  // A signal callback may still be pending in `io`, which runs on after this object's end.
  std::shared_ptr<bool> lifetime_ = std::make_shared<bool>(true);
  boost::asio::io_context& io_;
  JobRanks& ranks_;
  JobRunnerOptions options_;
  JobStateMachine job_;
  boost::asio::signal_set signals_;
  SuspendableTimer grace_timer_;
  SuspendableTimer stopped_timer_;
  Console console_;
  bool finished_ = false;
  std::vector<std::unique_ptr<RankOutput>> outputs_;
};

}  // namespace zeroth::launcher
