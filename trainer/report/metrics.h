// The machine-readable record of a run: one JSON object per line, written by rank 0.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "base/output_guard.h"
#include "comm/device_mesh.h"
#include "engine/engine.h"

namespace zeroth::trainer {

// The most memory that a run has held.
struct PeakMemory {
  double rss_mib = 0;  // resident set: mapped files and shared memory included
  double gpu_mib = 0;  // tensors on the GPU; 0 without one
};

// Of this process since its start.
PeakMemory local_peak_memory(torch::Device device);

// Of the largest rank. Collective over the mesh.
PeakMemory max_peak_memory(comm::DeviceMesh& mesh);

// A training step as metrics and progress show it.
struct StepRow {
  engine::StepStats stats;
  double step_s = 0;         // from the end of what came before (a step, an evaluation, a save)
  double since_start_s = 0;  // end of this step, from the launcher's start
  PeakMemory peak;           // of the largest rank
  // Work done by all ranks as a part of the matrix products that they could do in that time; a NaN
  // until that was measured.
  double mfu = std::numeric_limits<double>::quiet_NaN();
};

// What one rank was busy with in a step; the seconds add up to its StepTimes.
struct StepSplit {
  double compute_s = 0;
  double communication_s = 0;  // moving and reducing bytes
  double waiting_s = 0;        // for peers' bytes
  // The part of its collectives' time that passed beside other work; a NaN without collectives.
  double overlap = std::numeric_limits<double>::quiet_NaN();
};
StepSplit split_step_time(const engine::StepStats& stats);

struct EvalRow {
  int64_t step = 0;  // training steps done
  double eval_loss = 0;
  int64_t eval_tokens = 0;  // trained ones
  double since_start_s = 0;
  double eval_s = 0;  // that it took
};

// A signal has ended the training after this step.
struct StopRow {
  int64_t step = 0;
  std::string signal;  // "SIGTERM"
  double since_start_s = 0;
};

// The run went on behind this step, from a checkpoint.
struct ResumeRow {
  int64_t step = 0;
  double since_start_s = 0;
};

// One line without its end; numbers that are not finite are null.
std::string to_json(const StepRow& row);
std::string to_json(const EvalRow& row);
std::string to_json(const StopRow& row);
std::string to_json(const ResumeRow& row);

class MetricsFile {
 public:
  using Warn = std::function<void(const std::string&)>;

  // An empty path: nothing is written. Throws an Error with the path and the reason when it cannot
  // be written. What the file holds stays until the first write(). `guard` is asked before each
  // change of it, and what it throws is thrown.
  MetricsFile(const std::string& path, Warn warn, OutputGuard guard = {});

  // Flushed at once, so that a reader sees whole lines. A write that fails is told once, with path
  // and reason, and is the last one: a full disk does not end a training.
  void write(const std::string& line);

  // Before the first write(): the run goes on behind `step`, whose loss was `loss` (unset: that is
  // not known). Lines of later steps and one without its end are cut, where the file holds that
  // step with that loss and so is this run's. No other file loses anything: lines are added behind
  // what it has, and a warning says so.
  void resume_from(int64_t step, std::optional<double> loss);

 private:
  void append_to_other_run(int64_t step, bool empty);
  void require_ownership() const;
  // Empty when all went well.
  std::string try_write(const std::string& line);

  std::string path_;  // empty: nothing is written (any more)
  Warn warn_;
  OutputGuard guard_;
  std::ofstream file_;
  bool started_ = false;        // the file is this run's
  bool needs_newline_ = false;  // its last line, which is another's
};

}  // namespace zeroth::trainer
