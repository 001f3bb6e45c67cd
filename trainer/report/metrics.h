// The machine-readable record of a run: one JSON object per line, written by rank 0; and the clock
// of its times.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/files/output_lock.h"
#include "base/machine/timer.h"
#include "comm/device_mesh.h"
#include "engine/step/step_stats.h"

namespace zeroth::trainer {

// The time of the metrics, which begins at the start of the launcher.
class RunTimer {
 public:
  // `launch_time`: seconds since the epoch at which the launcher started; if unset, the start of
  // this process counts.
  explicit RunTimer(std::optional<double> launch_time);

  // Returns the seconds since that start; never decreases.
  double seconds() const { return before_s_ + timer_.seconds(); }
  // Returns that start, in seconds since the epoch.
  double start_time() const;

 private:
  double before_s_;  // from that start to the construction
  Timer timer_;
};

// Peak memory of a run.
struct PeakMemory {
  double rss_mib = 0;  // resident set: mapped files and shared memory included
  double gpu_mib = 0;  // tensors on the GPU; 0 without one
};

// Returns the peak of this process since its start.
PeakMemory local_peak_memory(torch::Device device);

// Returns the peak of the largest rank. Collective over the mesh.
PeakMemory max_peak_memory(comm::DeviceMesh& mesh);

// A training step as metrics and progress show it.
struct StepRow {
  engine::StepStats stats;
  double step_s = 0;         // since the end of the previous step, evaluation or save
  double data_wait_s = 0;    // for which rank 0 waited until its next batch was made
  double since_start_s = 0;  // end of this step, from the launcher's start
  PeakMemory peak;           // of the largest rank
  // Work of all ranks as a fraction of the matrix products that they could do in that time; a NaN
  // until that is measured.
  double mfu = std::numeric_limits<double>::quiet_NaN();
};

// Time of one rank in a step by activity; the seconds add up to its StepTimes.
struct StepSplit {
  double compute_s = 0;
  double communication_s = 0;  // moving and reducing bytes
  double waiting_s = 0;        // for peers' bytes
  // Fraction of its collectives' time that overlapped other work; a NaN without collectives.
  double overlap = std::numeric_limits<double>::quiet_NaN();
};
StepSplit split_step_time(const engine::StepStats& stats);

// How evenly a step's tokens chose experts.
struct ExpertLoad {
  double max = 0;      // tokens of a block's most chosen expert over its mean, of all blocks
  int64_t unused = 0;  // experts of all blocks that no token chose
};
// Returns zeros for a model without experts.
ExpertLoad expert_load(const engine::StepStats& stats);

struct EvalRow {
  int64_t step = 0;  // training steps done
  double eval_loss = 0;
  int64_t eval_tokens = 0;  // label tokens
  double since_start_s = 0;
  double eval_s = 0;  // seconds that it took
};

// A row about a signal that ended the training after this step.
struct StopRow {
  int64_t step = 0;
  std::string signal;  // "SIGTERM"
  double since_start_s = 0;
};

// A row about a run that resumed after this step from a checkpoint.
struct ResumeRow {
  int64_t step = 0;
  double since_start_s = 0;
};

// Returns the members of a step's line; unknown numbers are NaNs.
nlohmann::ordered_json step_values(const StepRow& row);

// Returns one line without its newline; numbers that are not finite are null.
std::string to_json(const StepRow& row);
std::string to_json(const EvalRow& row);
std::string to_json(const StopRow& row);
std::string to_json(const ResumeRow& row);

class MetricsFile {
 public:
  using Warn = std::function<void(const std::string&)>;

  // Opens the file; with an empty path nothing is written. Throws an Error with the path and the
  // reason if it cannot be written. The file's content is kept until the first write(). `guard` is
  // called before each change of the file, and its exceptions propagate.
  MetricsFile(const std::string& path, Warn warn, OutputGuard guard = {});

  // Writes a line and flushes it, so that a reader sees complete lines. A failed write is reported
  // once, with path and reason, and is the last one: a full disk does not end a training run.
  void write(const std::string& line);

  // Resumes after `step`, whose loss was `loss` (unset: unknown); called before the first write().
  // If the file holds that step with that loss, it is this run's: lines of later steps and an
  // incomplete last line are removed. Any other file loses nothing: lines are appended to it, and a
  // warning reports that.
  void resume_from(int64_t step, std::optional<double> loss);

 private:
  // Returns an empty text on success.
  std::string try_write(const std::string& line);

  std::string path_;  // empty: nothing is written, or no longer
  Warn warn_;
  OutputGuard guard_;
  std::ofstream file_;
  bool started_ = false;        // the file's content is this run's
  bool needs_newline_ = false;  // the last line, another run's, is incomplete
};

}  // namespace zeroth::trainer
