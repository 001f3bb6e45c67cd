#include "trainer/report/progress.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/text/printable.h"
#include "base/text/units.h"
#include "monitor/csv_monitor.h"

namespace zeroth::trainer {
namespace {

constexpr int64_t kFirstLines = 10;    // steps that each get a plain line
constexpr double kSecondsBetween = 2;  // between later plain lines

std::string momentum_text(const engine::StepStats& stats,
                          const configs::OptimizerConfig& optimizer) {
  if (!optimizer.has_betas()) return monitor::format_python_float(optimizer.momentum);
  return fmt::format("({}, {})", stats.next_betas[0], stats.next_betas[1]);
}

// Returns the line that DeepSpeed writes at steps_per_print, after its schedule has advanced: rate
// and momentum are those of the next step.
std::string deepspeed_text(const engine::StepStats& stats,
                           const configs::OptimizerConfig& optimizer) {
  return fmt::format("step={}, skipped={}, lr=[{}], mom=[{}]", stats.step, stats.skipped_total,
                     monitor::format_python_float(stats.next_lr), momentum_text(stats, optimizer));
}

// A part of the progress line. The parts of the highest rank are dropped first if not all fit.
struct ProgressPart {
  int rank;
  std::string text;
};

std::vector<ProgressPart> progress_parts(const StepRow& row, int64_t total_steps,
                                         double seconds_left) {
  const engine::StepStats& stats = row.stats;
  std::vector<ProgressPart> parts;
  const auto add = [&]<typename... Values>(int rank, fmt::format_string<Values...> text,
                                           Values&&... values) {
    parts.push_back({rank, fmt::format(text, std::forward<Values>(values)...)});
  };
  add(0, "step {}/{}", stats.step, total_steps);
  add(2, "loss {:.4f}", canonicalize_nan(stats.loss));
  add(6, "lr {:.2e}", stats.lr);
  add(5, "norm {:#.3g}", canonicalize_nan(stats.grad_norm));
  if (stats.skipped) {
    add(3, "skipped ({} so far), loss scale {}", stats.skipped_total, stats.loss_scale);
  }
  const double rate = static_cast<double>(stats.tokens) / row.step_s;
  add(4, "{} tok/s", format_count(std::llround(rate)));
  if (std::isfinite(row.mfu)) add(7, "{:.0f}% of peak", 100 * row.mfu);
  const double overlap = split_step_time(stats).overlap;
  if (std::isfinite(overlap)) add(8, "overlap {:.0f}%", 100 * overlap);
  if (!stats.pipe_idle.empty()) {
    const double idle = std::accumulate(stats.pipe_idle.begin(), stats.pipe_idle.end(), 0.0);
    add(9, "bubble {:.0f}%",
        100 * idle / (row.step_s * static_cast<double>(stats.pipe_idle.size())));
  }
  if (stats.step < total_steps) add(1, "{} left", format_duration(seconds_left));
  return parts;
}

std::string join_parts(const std::vector<ProgressPart>& parts) {
  std::string line;
  for (const ProgressPart& part : parts) line += (line.empty() ? "" : " | ") + part.text;
  return line;
}

// Returns the traffic of each group of ranks, if there are several groups.
std::string by_group_text(const engine::StepStats& stats) {
  if (stats.comm_by_group.size() < 2) return "";
  std::vector<std::string> parts;
  for (const auto& [group, comm] : stats.comm_by_group) {
    parts.push_back(fmt::format("{} {} in {:.3f} s", group, format_bytes(comm.bytes),
                                comm.working_s + comm.waiting_s));
  }
  return fmt::format(" ({})", fmt::join(parts, ", "));
}

}  // namespace

std::string progress_text(const StepRow& row, int64_t total_steps, double seconds_left,
                          size_t width) {
  std::vector<ProgressPart> parts = progress_parts(row, total_steps, seconds_left);
  while (join_parts(parts).size() > width && parts.size() > 1) {
    parts.erase(std::max_element(
        parts.begin(), parts.end(),
        [](const ProgressPart& a, const ProgressPart& b) { return a.rank < b.rank; }));
  }
  return join_parts(parts).substr(0, width);
}

std::string breakdown_text(const engine::StepStats& stats) {
  const engine::StepTimes& times = stats.times;
  std::string text =
      fmt::format("data {:.3f} forward {:.3f} backward {:.3f} reduce {:.3f} update {:.3f} s",
                  times.data, times.forward, times.backward, times.reduce, times.update);
  if (stats.comm.collectives > 0) {
    const StepSplit split = split_step_time(stats);
    text += fmt::format(" = compute {:.3f} communication {:.3f} waiting {:.3f} s", split.compute_s,
                        split.communication_s, split.waiting_s) +
            by_group_text(stats);
  }
  const offload::Traffic& traffic = stats.offload.traffic;
  if (traffic.in_flight_s > 0) {
    text += fmt::format("; read {} wrote {} in {:.3f} s, {:.0f}% hidden",
                        format_bytes(traffic.bytes_read), format_bytes(traffic.bytes_written),
                        traffic.in_flight_s, 100 * stats.offload.hidden());
  }
  return text;
}

std::string memory_text(const engine::MemoryPoint& point) {
  const device::MemoryUse& use = point.use;
  std::string text = fmt::format("memory {}: host {} (peak {})", point.name, format_bytes(use.host),
                                 format_bytes(use.host_peak));
  if (use.device_reserved > 0) {
    text += fmt::format("; device {} (peak {}), {} reserved", format_bytes(use.device_allocated),
                        format_bytes(use.device_peak), format_bytes(use.device_reserved));
  }
  return text;
}

Progress::Progress(ProgressOptions options, Output output)
    : options_(std::move(options)), output_(std::move(output)) {}

Progress::~Progress() {
  if (line_open_) output_("\n");
}

// Returns false if every step has lines: they leave no room for a redrawn line.
bool Progress::redraws() const {
  return options_.columns && !options_.config.wall_clock_breakdown &&
         !options_.config.memory_breakdown && !shows(configs::LogLevel::kDebug);
}

void Progress::step(const StepRow& row) {
  if (!shows(configs::LogLevel::kInfo)) return;
  const double left = seconds_left(row);
  if (redraws()) {
    const auto width = static_cast<size_t>(*options_.columns);
    redraw(progress_text(row, options_.total_steps, left, width));
  } else if (is_line_due(row)) {
    std::string text = progress_text(row, options_.total_steps, left);
    if (options_.config.wall_clock_breakdown || shows(configs::LogLevel::kDebug)) {
      text += " | " + breakdown_text(row.stats);
    }
    line(text);
    for (const engine::MemoryPoint& point : row.stats.memory) line(memory_text(point));
  }
  if (options_.config.steps_per_print > 0 &&
      row.stats.step % options_.config.steps_per_print == 0) {
    line(deepspeed_text(row.stats, options_.config.optimizer));
  }
}

void Progress::evaluation(const EvalRow& row) {
  const std::string when = row.step > 0 ? fmt::format(" at step {}", row.step) : "";
  line(fmt::format("eval{} | loss {:.6f} | perplexity {:.2f} | {} tokens", when,
                   canonicalize_nan(row.eval_loss), canonicalize_nan(std::exp(row.eval_loss)),
                   row.eval_tokens));
}

void Progress::line(std::string_view text, configs::LogLevel level) {
  if (!shows(level)) return;
  write_line(printable(text));
}

void Progress::lines(std::string_view text) {
  if (shows(configs::LogLevel::kInfo)) write_line(text);
}

void Progress::status(std::string_view text) {
  if (!redraws()) return line(text);
  if (!shows(configs::LogLevel::kInfo)) return;
  redraw(printable(text).substr(0, static_cast<size_t>(*options_.columns)));
}

void Progress::redraw(std::string_view text) {
  const std::lock_guard lock(mutex_);
  output_(fmt::format("\r{}\x1b[K", text));
  line_open_ = true;
}

// Replaces a redrawn line, which returns with the next step.
void Progress::write_line(std::string_view text) {
  const std::lock_guard lock(mutex_);
  output_(fmt::format("{}{}\n", line_open_ ? "\r\x1b[K" : "", text));
  line_open_ = false;
}

void Progress::warning(std::string_view text) {
  line(fmt::format("warning: {}", text), configs::LogLevel::kWarning);
}

bool Progress::is_line_due(const StepRow& row) {
  const bool due = shows(configs::LogLevel::kDebug) ||
                   row.stats.step - steps_before_ <= kFirstLines ||
                   row.stats.step == options_.total_steps || row.stats.skipped ||
                   row.since_start_s - last_plain_s_ >= kSecondsBetween;
  if (due) last_plain_s_ = row.since_start_s;
  return due;
}

double Progress::seconds_left(const StepRow& row) {
  // The first step also warms up; the second one replaces it.
  const bool fresh = row.stats.step - steps_before_ <= 2;
  smooth_step_s_ = fresh ? row.step_s : 0.9 * smooth_step_s_ + 0.1 * row.step_s;
  return smooth_step_s_ * static_cast<double>(options_.total_steps - row.stats.step);
}

}  // namespace zeroth::trainer
