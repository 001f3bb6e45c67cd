// Everything that a run tells while it goes on: progress on the terminal, the metrics file, the
// monitors, the page. Rank 0 writes; no other rank waits for what it writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/rank_env.h"
#include "engine/engine.h"
#include "engine/memory_check.h"
#include "monitor/monitors.h"
#include "monitor/run_page.h"
#include "trainer/report/attempt_log.h"
#include "trainer/report/environment.h"
#include "trainer/report/metrics.h"
#include "trainer/report/mfu_meter.h"
#include "trainer/report/phase_progress.h"
#include "trainer/report/progress.h"
#include "trainer/report/run_record.h"
#include "trainer/report/run_timer.h"
#include "trainer/report/summary.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Every rank has one and calls the same functions of it in the same order.
class Reporter {
 public:
  // Opens what rank 0 writes to. Throws an Error that names flag or key, path and reason: before
  // weights are read, so that nobody learns it after an hour. So does whatever prints below, where
  // the output is lost of a run that makes nothing else. Keeps references to `plan`, `memory` and
  // `clock`.
  Reporter(const RunPlan& plan, const engine::RunMemory& memory, const comm::RankEnv& env,
           const RunTimer& clock);
  // Without finish() the page says that the run has stopped.
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // `lock` of --output, or null, stays in use. Where a later round has taken the output over, each
  // of the calls below throws an Error that says so, and writes nothing.
  void guard(const OutputLock* lock) { attempts_.guard(lock); }
  void require_ownership() const { attempts_.require_ownership(); }
  // A line of the summary that the plan could not know.
  void note(const std::string& text);
  // Prints the summary: before weights are read. `threads`: of this rank.
  void print_summary(comm::DeviceMesh& mesh, const comm::RankEnv& env, int threads);
  // The run is to go on from a checkpoint: until resume_from(), files of before stay as they are.
  // Before weights are read.
  void expect_resume() { awaits_resume_ = true; }
  // Starts the page. `engine` stays in use.
  void start(engine::Engine& engine);
  // All that is told goes on behind `step`, once the engine has its states and before the first
  // step. `history`: that of a former run's history() at this step; empty: it is not known. What
  // files hold of later steps is cut. Throws an Error that names kHistoryFile: nothing is touched
  // then.
  void resume_from(const std::string& history, int64_t step);
  // On rank 0: for resume_from() of a later run. Empty elsewhere.
  std::string history() const;
  // The time since the last step belongs to no step.
  void reset_step_timer() { last_end_s_ = now(); }
  // Collective. What cannot be written any more (--metrics, the page, monitors) goes silent with
  // one warning.
  void step(const engine::StepStats& stats);
  void log_evaluation(int64_t step, const engine::EvalStats& stats);
  // Whether the run before has evaluated after `step` steps, with a finite loss. Collective.
  bool has_evaluation(int64_t step) const;
  // `outcome`: what becomes of the model.
  void log_interruption(const StopRow& row, std::string_view outcome);
  void warn(std::string_view text) { progress_.warning(text); }
  // What the run does from now on, until the end of the scope.
  PhaseProgress::Scope begin(ProgressPhase phase) { return phases_.begin(std::move(phase)); }
  // A step. The first one of this try is shown when it is long, a later one when it lasts minutes.
  PhaseProgress::Scope begin_step(int64_t step);
  // Of the present phase (PhaseProgress::advance).
  void advance(int64_t done, std::optional<int64_t> total = std::nullopt) {
    phases_.advance(done, total);
  }
  // A model was saved: the page is brought up to date, too.
  void log_saved(std::string_view text);
  // The files beside the model (RunRecord) once it stands in its place; and in a folder on the way.
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
  void show_summary();
  // What the engine has come to know and was not told yet. Files are made when they are first used.
  void log_notes();
  void profile(const engine::StepStats& stats);
  // False where the folder of that name in OUTPUT/runs is gone.
  bool resume_in(const std::string& run_name);
  void show_monitors();  // where they write by now
  void start_over();
  void reclaim_previous_attempt();
  void open_page(const monitor::RunPage::PreviousRun* former);
  void update_page();

  const RunPlan& plan_;
  const engine::RunMemory& memory_;
  const RunTimer& clock_;
  bool writes_;
  std::atomic<int> output_error_ = 0;  // an errno: standard output is lost
  MetricsFile metrics_;
  Progress progress_;
  PhaseProgress phases_{progress_, [this] { return clock_.seconds(); }};
  monitor::Monitors monitors_;
  MfuMeter mfu_meter_;
  std::string run_name_;  // of the folder in OUTPUT/runs; empty: there is none
  RunRecord record_;
  AttemptLog attempts_;
  std::optional<monitor::RunPage> page_;  // rank 0, with --output
  engine::Engine* engine_ = nullptr;
  SummaryLines summary_;
  TitledLines environment_;
  bool awaits_resume_ = false;  // for resume_from()
  bool is_first_step_ = true;   // the next step is this try's first
  int64_t step_ = 0;            // that are done
  std::optional<double> loss_;  // of the last one
  double earlier_seconds_ = 0;  // of the tries before this one
  double last_end_s_ = 0;       // end of the previous step, or what came after it
  double last_page_s_ = 0;      // when the page was written
};

}  // namespace zeroth::trainer
