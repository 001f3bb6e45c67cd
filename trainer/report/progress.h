// Progress output of a run while it trains: a redrawn line on a terminal, plain lines at sensible
// intervals elsewhere. Lines may come from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "configs/config.h"
#include "trainer/report/metrics.h"

namespace zeroth::trainer {

struct ProgressOptions {
  int64_t total_steps = 0;
  std::optional<int> columns = std::nullopt;  // width of the terminal; unset: plain lines
  // log_level: less important lines are not shown. steps_per_print: steps between lines in
  // DeepSpeed's form. wall_clock_breakdown, memory_breakdown: plain lines, with the split of the
  // step's time, or the memory after a step's phases below them.
  configs::Config config = {};
};

class Progress {
 public:
  using Output = std::function<void(std::string_view)>;  // writes and flushes

  Progress(ProgressOptions options, Output output);
  // Ends a redrawn line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Sets the step after which this attempt begins.
  void resume_from(int64_t step) { steps_before_ = step; }
  void step(const StepRow& row);
  void evaluation(const EvalRow& row);
  // Writes a permanent line; `text` has no newline. It may hold anything: it is made printable.
  void line(std::string_view text, configs::LogLevel level = configs::LogLevel::kInfo);
  void warning(std::string_view text);
  // Writes lines of our own, which hold no text from files.
  void lines(std::string_view text);
  // Shows what the run is doing: on the redrawn line if there is one, otherwise as a permanent
  // line. `text` may hold anything, as in line().
  void status(std::string_view text);
  // Returns whether there is a redrawn line.
  bool redraws() const;

 private:
  void write_line(std::string_view text);
  void redraw(std::string_view text);
  bool shows(configs::LogLevel level) const { return level >= options_.config.log_level; }
  bool is_line_due(const StepRow& row);
  double seconds_left(const StepRow& row);

  ProgressOptions options_;
  Output output_;
  int64_t steps_before_ = 0;  // steps of earlier attempts
  std::mutex mutex_;          // guards the output
  bool line_open_ = false;    // a redrawn line is not ended yet
  double last_plain_s_ = 0;   // when the last plain line was written
  double smooth_step_s_ = 0;  // mean of the recent steps
};

// Returns "step 12/200 | loss 2.3412 | lr 5.00e-05 | norm 1.23 | 12.3K tok/s | 41% of peak |
// overlap 87% | 3m05s left"; drops full parts that exceed `width`, step and time left last.
std::string progress_text(const StepRow& row, int64_t total_steps, double seconds_left,
                          size_t width = std::string::npos);

// Returns "data 0.001 forward 0.120 backward 0.250 reduce 0.010 update 0.004 s"; if ranks
// communicate, also " = compute 0.300 communication 0.050 waiting 0.035 s"; if states or parameters
// are in files, also "; read 1.20 GiB wrote 1.20 GiB in 0.900 s, 70% hidden".
std::string breakdown_text(const engine::StepStats& stats);

// Returns "memory after forward: host 312 MiB (peak 340 MiB)", and on a GPU also "; device 1.20 GiB
// (peak 1.40 GiB), 1.50 GiB reserved".
std::string memory_text(const engine::MemoryPoint& point);

}  // namespace zeroth::trainer
