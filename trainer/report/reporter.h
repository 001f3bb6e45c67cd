// All reports of a run during its life: progress on the terminal, the metrics file, the monitors,
// the page. Rank 0 writes; no other rank waits for its writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "comm/bootstrap/rank_env.h"
#include "engine/engine.h"
#include "engine/memory/memory_check.h"
#include "monitor/monitors.h"
#include "monitor/run_page.h"
#include "trainer/attempt_log.h"
#include "trainer/report/flops_profile.h"
#include "trainer/report/metrics.h"
#include "trainer/report/monitoring.h"
#include "trainer/report/phase_progress.h"
#include "trainer/report/progress.h"
#include "trainer/report/run_record.h"
#include "trainer/report/step_trace.h"
#include "trainer/report/summary.h"

namespace zeroth::trainer {

struct RunPlan;

// Reporter writes all reports. Every rank has one and calls the same functions of it in the same
// order.
class Reporter {
 public:
  // Opens rank 0's outputs. Throws an Error that names flag or key, path and reason: before weights
  // are read, so that the user learns it early. Functions below that print also throw if the output
  // is lost of a run that produces nothing else. Keeps references to `plan`, `memory` and `clock`.
  Reporter(const RunPlan& plan, const engine::RunMemory& memory, const comm::RankEnv& env,
           const RunTimer& clock);
  // Marks the page as stopped unless finish() was called.
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // Sets the lock of --output, or null, and keeps a reference to it. Each of the calls below throws
  // an Error, and writes nothing, after a later attempt has taken over the output.
  void guard(const OutputLock* lock) { attempts_.guard(lock); }
  void require_ownership() const { attempts_.require_ownership(); }
  // Adds a line to the summary that the plan could not know.
  void note(const std::string& text) { summary_.push_back(note_line(text)); }
  // Prints the summary, before weights are read. `threads`: of this rank.
  void print_summary(comm::DeviceMesh& mesh, const comm::RankEnv& env, int threads);
  // Announces a resume from a checkpoint, before weights are read: existing files stay unchanged
  // until resume_from().
  void expect_resume() { awaits_resume_ = true; }
  // Starts the page. Keeps a reference to `engine`.
  void start(engine::Engine& engine);
  // Resumes all reports after `step`, once the engine has its states and before the first step.
  // `history`: what history() of an earlier run returned at this step; empty: unknown. Removes
  // later steps from files. Throws an Error that names kHistoryFile, and changes nothing then.
  void resume_from(const std::string& history, int64_t step);
  // Returns, on rank 0, the text for resume_from() of a later run; empty elsewhere.
  std::string history() const;
  // Restarts the step timer: the time since the last step belongs to no step.
  void reset_step_timer() { last_end_s_ = now(); }
  // Returns whether the step is to be traced (Engine::trace_next_step).
  bool traces(int64_t step) { return trace_.is_due(step); }
  // Reports a step. Collective. An output that can no longer be written (--metrics, the page,
  // monitors) is disabled with one warning. `data_wait_s`: of the step, for the loader.
  void step(const engine::StepStats& stats, double data_wait_s = 0);
  void log_evaluation(int64_t step, const engine::EvalStats& stats);
  // Returns whether the previous run evaluated after `step` steps, with a finite loss. Collective.
  bool has_evaluation(int64_t step) const;
  // Reports a stop by a signal. `outcome`: what happens to the model.
  void log_interruption(const StopRow& row, std::string_view outcome);
  void warn(std::string_view text) { progress_.warning(text); }
  // Begins a phase that lasts until the end of the returned scope.
  PhaseProgress::Scope begin(ProgressPhase phase) { return phases_.begin(std::move(phase)); }
  // Begins a step. The first one of this attempt is shown if it is long, a later one if it lasts
  // minutes.
  PhaseProgress::Scope begin_step(int64_t step);
  // Updates the current phase (PhaseProgress::advance).
  void advance(int64_t done, std::optional<int64_t> total = std::nullopt) {
    phases_.advance(done, total);
  }
  // Reports a saved model, and updates the page.
  void log_saved(std::string_view text);
  // Writes the files beside a model (RunRecord): into --output once the final model is in place, or
  // into the directory of a checkpoint.
  void write_records(const BestModel& best, int64_t final_step);
  void write_state_to(const std::filesystem::path& directory, const BestModel& best);
  void finish();

  const RunTimer& clock() const { return clock_; }

 private:
  double now() const { return earlier_seconds_ + clock_.seconds(); }
  void print(std::string_view text);
  template <typename Action>
  void warn_on_error(Action action);
  void require_output() const;
  void show(const SummaryLine& line);
  // Reports the engine's notes that are not reported yet. The engine creates files on first use.
  void log_notes();
  void profile(const engine::StepStats& stats);
  // Returns whether it has written a file, whose time belongs to no step.
  bool trace(const engine::StepStats& stats, double begin_s);
  // Returns false if the directory of that name in OUTPUT/runs is gone.
  bool resume_in(const std::string& run_name);
  void show_monitors();  // reports where they write now
  bool has_page() const;
  void start_over();
  void reclaim_previous_attempt();
  void open_page(const monitor::RunPage::PreviousRun* former);
  void update_page();

  const RunPlan& plan_;
  const engine::RunMemory& memory_;
  const RunTimer& clock_;
  // Of all that writes: see require_ownership() and warn().
  const OutputGuard guard_ = [this] { require_ownership(); };
  const std::function<void(const std::string&)> warn_ = [this](const std::string& text) {
    warn(text);
  };
  bool writes_;
  std::atomic<int> output_error_ = 0;  // an errno; not 0: standard output is lost
  MetricsFile metrics_;
  Progress progress_;
  PhaseProgress phases_{progress_, [this] { return clock_.seconds(); }};
  monitor::Monitors monitors_;
  MfuMeter mfu_meter_;
  StepTrace trace_;
  std::string run_name_;  // directory name in OUTPUT/runs; empty: none
  RunRecord record_;
  AttemptLog attempts_;
  std::optional<monitor::RunPage> page_;  // rank 0, with --output
  engine::Engine* engine_ = nullptr;
  SummaryLines summary_;
  TitledLines environment_;
  bool awaits_resume_ = false;  // until resume_from()
  bool is_first_step_ = true;   // the next step is this attempt's first
  int64_t step_ = 0;            // steps done
  std::optional<double> loss_;  // of the last step
  double earlier_seconds_ = 0;  // of the attempts before this one
  double last_end_s_ = 0;       // end of the previous step, or what came after it
  double last_page_s_ = 0;      // when the page was written
};

}  // namespace zeroth::trainer
