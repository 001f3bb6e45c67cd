#include "trainer/report/reporter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/files/replace_file.h"
#include "base/machine/process_limits.h"
#include "base/machine/standard_streams.h"
#include "comm/comm_log.h"
#include "comm/cpu_collectives.h"
#include "trainer/failure.h"
#include "trainer/report/config_text.h"
#include "trainer/report/history.h"
#include "trainer/run_plan.h"
#include "zero/dtype.h"

namespace zeroth::trainer {
namespace {

constexpr double kSecondsBetweenPages = 15;
constexpr double kLongStep = 60;             // seconds
constexpr const char* kMonitor = "monitor";  // title of a line of the summary

// Returns whether the run is an evaluation whose loss goes to standard output only.
bool only_writes_stdout(const Flags& flags) {
  return flags.eval_only && flags.metrics.empty();
}

std::string page_path(const RunPlan& plan) {
  return (std::filesystem::path(plan.flags.output) / "train_log.html").string();
}

}  // namespace

Reporter::Reporter(const RunPlan& plan, const engine::RunMemory& memory, const comm::RankEnv& env,
                   const RunTimer& clock)
    : plan_(plan),
      memory_(memory),
      clock_(clock),
      writes_(env.rank == 0),
      metrics_(rethrow_as_usage_error(
          plan.attempt,
          [&] { return MetricsFile(writes_ ? plan.flags.metrics : "", warn_, guard_); })),
      progress_({.total_steps = plan.samples.total_steps,
                 .columns = env.terminal_columns,
                 .config = plan.config},
                [this](std::string_view text) { print(text); }),
      mfu_meter_(plan.spec, plan.global_batch(), plan.adapter.has_value()),
      trace_(plan.flags.trace_steps, plan.config.pipeline.stages, !plan.flags.output.empty()),
      run_name_(plan.monitors.run_name),
      record_(plan),
      attempts_(plan, writes_, run_name_) {
  if (writes_ && only_writes_stdout(plan.flags) && stdout_was_closed()) {
    throw Error("standard output is closed");
  }
  if (writes_) phases_.start_ticking();
  if (!writes_ || !plan.samples.train) return;
  monitors_ = monitor::Monitors(plan.config, plan.monitors.tensorboard, warn_);
  const configs::FlopsProfilerConfig& profiler = plan.config.flops_profiler;
  if (profiler.enabled && !profiler.output_file.empty()) write_profile(profiler.output_file, "");
}

Reporter::~Reporter() {
  try {
    if (page_) page_->write(monitor::RunPage::Status::kStopped);
  } catch (const OutputTakenOver&) {  // the page is another attempt's then
  }
}

// Prints on rank 0. A run does not end because its output is lost.
void Reporter::print(std::string_view text) {
  if (!writes_ || write_all(STDOUT_FILENO, text) || output_error_ != 0) return;
  output_error_ = errno;
  if (only_writes_stdout(plan_.flags)) return;
  write_last_message(
      fmt::format("finetune: warning: standard output is lost from here on: {}; "
                  "the run continues\n",
                  system_reason(output_error_)));
}

void Reporter::require_output() const {
  if (output_error_ != 0 && only_writes_stdout(plan_.flags)) throw_output_error(output_error_);
}

void Reporter::print_summary(comm::DeviceMesh& mesh, const comm::RankEnv& env, int threads) {
  const SummaryLines known = summary(plan_, memory_, mesh, env, threads);
  summary_.insert(summary_.begin(), known.begin(), known.end());
  environment_ = environment_lines(mesh, threads);
  if (!plan_.resume_plan) {  // otherwise its checkpoint determines where they resume
    for (const std::string& line : monitors_.lines()) summary_.push_back({kMonitor, line});
  }
  attempts_.begin(static_cast<int64_t>(mesh.nodes().size()), mesh.world_size());
  if (attempts_.any()) summary_.push_back({"round", attempts_.line()});
  const auto warnings = put_warnings_last(summary_);
  std::for_each(summary_.begin(), warnings, [this](const SummaryLine& line) { show(line); });
  if (plan_.config.dump_state) progress_.lines(config_text(plan_));
  if (warnings != summary_.end()) progress_.line("");
  std::for_each(warnings, summary_.end(), [this](const SummaryLine& line) { show(line); });
  require_output();
}

void Reporter::start(engine::Engine& engine) {
  engine_ = &engine;
  log_notes();
  if (!awaits_resume_) start_over();
  reset_step_timer();
}

// Starts all reports over; also in a later attempt after one without a checkpoint, of which only
// the row is kept.
void Reporter::start_over() {
  attempts_.resume_from(0);
  for (const std::string& line : attempts_.lines()) metrics_.write(line);
  if (plan_.attempt.resumes) {
    (void)resume_in(attempts_.previous_run_name());
    monitors_.resume_from(0, 0);
  } else if (plan_.flags.resume.is_on()) {
    reclaim_previous_attempt();
  }
  open_page(nullptr);
}

bool Reporter::has_page() const {
  return writes_ && plan_.samples.train && !plan_.flags.output.empty();
}

// Reuses the files of an attempt that --resume auto replaces: it was killed before a checkpoint.
void Reporter::reclaim_previous_attempt() {
  if (!has_page()) return;
  const auto former = monitor::read_page(page_path(plan_));
  if (!former || former->is_finished) return;
  (void)resume_in(former->run_name);
  monitors_.start_over(former->monitors, former->started);
}

void Reporter::open_page(const monitor::RunPage::PreviousRun* former) {
  if (!has_page()) return;
  monitor::PageFacts facts = page_facts(plan_, summary_, environment_);
  facts.rounds = attempts_.rows();
  facts.run_name = run_name_;
  facts.monitors = monitors_.directories();
  page_.emplace(page_path(plan_), std::move(facts), warn_, former, guard_);
}

std::string Reporter::history() const {
  if (!writes_) return "";
  return to_text({.step = step_,
                  .seconds = now(),
                  .loss = loss_,
                  .run_name = run_name_,
                  .record = record_.history(now()),
                  .page = page_ ? page_->history() : nlohmann::json()});
}

void Reporter::resume_from(const std::string& text, int64_t step) {
  History history{.step = step};
  if (!text.empty()) history = parse_history(text);
  const auto view = [](const nlohmann::json& tree, const char* name) {
    return tree.is_null()
               ? std::nullopt
               : std::optional(JsonView(tree, fmt::format("{}: {}", kHistoryFile, name)));
  };
  require_ownership();
  if (history.step != step) {
    throw Error("{} is for step {}, the checkpoint for step {}", kHistoryFile, history.step, step);
  }
  if (const auto record = view(history.record, "record")) record_.resume_from(*record);
  if (!resume_in(history.run_name)) {
    progress_.warning(
        fmt::format("{}/runs/{} is missing, to which the run wrote before: its curves "
                    "continue in {}, from step {}",
                    plan_.flags.output, history.run_name, run_name_, step + 1));
  }
  show_monitors();
  attempts_.resume_from(step);
  const monitor::RunPage::PreviousRun former{.history = view(history.page, "page"), .step = step};
  open_page(&former);
  awaits_resume_ = false;
  step_ = step;
  loss_ = history.loss;
  earlier_seconds_ = history.seconds;
  progress_.resume_from(step);
  if (step > 0) {
    metrics_.resume_from(step, loss_);
    metrics_.write(to_json(ResumeRow{.step = step, .since_start_s = now()}));
  }
  for (const std::string& line : attempts_.lines()) metrics_.write(line);
  monitors_.resume_from(step, plan_.samples_after(step));
  reset_step_timer();
}

// Continues in the directory of the first attempt, whose name --report_to derives from the time.
bool Reporter::resume_in(const std::string& run_name) {
  if (!writes_ || run_name.empty() || run_name_.empty() || run_name == run_name_) return true;
  const auto runs = std::filesystem::path(plan_.flags.output) / "runs";
  const auto directory = Directory::find(runs);
  if (!directory || !directory->open_subdirectory(run_name)) return false;
  monitors_.resume_in(runs / run_name, runs / run_name_);
  run_name_ = run_name;
  if (!plan_.resume_plan) show_monitors();
  return true;
}

void Reporter::show_monitors() {
  std::erase_if(summary_, [](const SummaryLine& line) { return line.title == kMonitor; });
  for (const std::string& line : monitors_.lines())
    show(summary_.emplace_back(SummaryLine{kMonitor, line}));
}

void Reporter::show(const SummaryLine& line) {
  progress_.line(fmt::format("{:<10} {}", line.title, line.text), line.level);
}

void Reporter::log_notes() {
  for (const std::string& note : engine_->notes()) {
    const SummaryLine line = note_line(note);
    if (std::find(summary_.begin(), summary_.end(), line) != summary_.end()) continue;
    summary_.push_back(line);
    show(line);
  }
}

PhaseProgress::Scope Reporter::begin_step(int64_t step) {
  const int64_t micro_batches = plan_.train_partition(0).micro_steps;
  ProgressPhase phase{.name = fmt::format("step {}", step)};
  // Breadth-first, no micro-batch is done before the others; in a pipeline several are in flight.
  const configs::PipelineConfig& pipeline = plan_.config.pipeline;
  if (micro_batches > 1 && !pipeline.is_on() && !pipeline.is_breadth_first()) {
    phase.total = micro_batches;
    phase.counts = "micro-batch {} of {}";
    phase.first = 1;
  }
  if (!is_first_step_) {
    phase.shown_after_s = micro_batches > 1 ? kLongStep : std::numeric_limits<double>::infinity();
  } else if (clock_.seconds() >= phase.shown_after_s) {
    progress_.line(fmt::format("{} begins", phase.name));
  }
  return begin(std::move(phase));
}

void Reporter::step(const engine::StepStats& stats, double data_wait_s) {
  require_ownership();
  const double end = now();
  const double step_s = end - last_end_s_;
  const bool first = std::exchange(is_first_step_, false);
  step_ = stats.step;
  loss_ = stats.loss;
  const StepRow row{
      .stats = stats,
      .step_s = step_s,
      .data_wait_s = data_wait_s,
      .since_start_s = end,
      .peak = plan_.flags.metrics.empty() ? PeakMemory{} : max_peak_memory(engine_->mesh()),
      .mfu = mfu_meter_.measure_step(stats, step_s)};
  metrics_.write(to_json(row));
  attempts_.step(stats.step);
  const nlohmann::json logged = record_.step(row);
  progress_.step(row);
  const bool wrote_trace = trace(stats, end - step_s);
  if (first) log_notes();
  if (comm::CommLog* log = engine_->mesh().comm_log()) {
    for (const std::string& line : log->take_lines()) progress_.line(line);
  }
  if (writes_) {
    if (monitors_.any()) {
      monitors_.write({.deepspeed = step_events(row, plan_.config, plan_.samples_after(stats.step)),
                       .trainer = trainer_events(logged)});
    }
    profile(stats);
    if (page_) page_->step(page_step(row, device::memory_use(engine_->mesh().device())));
    if (first || end - last_page_s_ >= kSecondsBetweenPages) update_page();
  }
  if (first && stats.step < plan_.samples.total_steps) {
    mfu_meter_.measure(zero::working_dtype(plan_.config), engine_->mesh());
    reset_step_timer();
  } else {
    last_end_s_ = wrote_trace ? now() : end;
  }
}

void Reporter::profile(const engine::StepStats& stats) {
  if (stats.blocks.empty()) return;
  const std::string& path = plan_.config.flops_profiler.output_file;
  try {
    const std::string text = profile_text(stats, {.config = plan_.config,
                                                  .spec = plan_.spec,
                                                  .batch = plan_.train_partition(0),
                                                  .seq_len = plan_.samples.seq_len,
                                                  .world_size = engine_->mesh().world_size(),
                                                  .num_parameters = plan_.estimate.num_parameters});
    if (!path.empty()) return write_profile(path, text);
    progress_.lines(text.substr(0, text.size() - 1));  // without the last newline
  } catch (const Error& error) {
    progress_.warning(error.what());
  }
}

// Turns an Error into a warning: a full disk does not end a run whose model is saved.
template <typename Action>
void Reporter::warn_on_error(Action action) {
  if (!writes_ || plan_.flags.output.empty()) return;
  try {
    action();
  } catch (const OutputTakenOver&) {
    throw;
  } catch (const Error& error) {
    progress_.warning(error.what());
  }
}

bool Reporter::trace(const engine::StepStats& stats, double begin_s) {
  if (!writes_ || stats.timelines.empty()) return false;
  if (page_) page_->timeline(page_timeline(stats, plan_.config.pipeline.stages));
  const bool adds = trace_.add(stats, begin_s, warn_);
  const std::filesystem::path path = std::filesystem::path(plan_.flags.output) / "trace.json";
  if (adds) warn_on_error([&] { replace_file(path, trace_.chrome_trace(), guard_); });
  return adds;
}

void Reporter::log_evaluation(int64_t step, const engine::EvalStats& stats) {
  require_ownership();
  const double end = now();
  const EvalRow row{.step = step,
                    .eval_loss = stats.loss,
                    .eval_tokens = stats.num_label_tokens,
                    .since_start_s = end,
                    .eval_s = end - last_end_s_};
  metrics_.write(to_json(row));
  const nlohmann::json logged = record_.add_evaluation(row);
  progress_.evaluation(row);
  require_output();
  monitors_.write({.deepspeed = eval_events(row, plan_.samples_after(step)),
                   .trainer = trainer_events(logged)});
  if (page_) page_->evaluation(step, stats.loss);
  update_page();
  reset_step_timer();
}

void Reporter::log_interruption(const StopRow& row, std::string_view outcome) {
  require_ownership();
  StopRow total_row = row;
  total_row.since_start_s += earlier_seconds_;
  if (!awaits_resume_) metrics_.write(to_json(total_row));
  std::string when = plan_.samples.train ? "before the first step" : "before the end";
  if (row.step > 0) when = fmt::format("after step {}/{}", row.step, plan_.samples.total_steps);
  progress_.line(fmt::format("interrupted by {} {}{}{}", row.signal, when,
                             outcome.empty() ? "" : "; ", outcome));
}

void Reporter::log_saved(std::string_view text) {
  require_ownership();
  progress_.line(text);
  update_page();
  reset_step_timer();
}

bool Reporter::has_evaluation(int64_t step) const {
  const int64_t has = record_.has_eval_loss(step) ? 1 : 0;  // only rank 0 read the history
  return comm::max_over_ranks(has, "whether a step was evaluated", engine_->mesh()) == 1;
}

void Reporter::write_records(const BestModel& best, int64_t final_step) {
  if (monitors_.any() && !is_first_step_ && step_ == plan_.samples.total_steps) {
    monitors_.write({.deepspeed = {}, .trainer = trainer_events(record_.final_row())});
  }
  warn_on_error([&] { record_.write(best, final_step, guard_); });
}

void Reporter::write_state_to(const std::filesystem::path& directory, const BestModel& best) {
  require_ownership();
  warn_on_error([&] { record_.write_state(directory, best); });
}

void Reporter::finish() {
  require_ownership();
  if (const comm::CommLog* log = engine_->mesh().comm_log()) {
    for (const std::string& line : log->table()) progress_.line(line);
  }
  if (page_) page_->write(monitor::RunPage::Status::kFinished);
  page_.reset();
}

void Reporter::update_page() {
  if (!page_) return;
  page_->write(monitor::RunPage::Status::kRunning);
  last_page_s_ = now();
}

}  // namespace zeroth::trainer
