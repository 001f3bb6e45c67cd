// The machine-readable record of a run: one JSON object per line, written by rank 0.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "engine/engine.h"
#include "trainer/peak_memory.h"

namespace zeroth::trainer {

// A training step as metrics and progress show it.
struct StepRow {
  engine::StepStats stats;
  double step_s = 0;         // end of the previous step (or start of training) to the end of this
  double since_start_s = 0;  // end of this step, from the launcher's start
  PeakMemory peak;           // of the largest rank
};

struct EvalRow {
  int64_t step = 0;  // training steps done
  double eval_loss = 0;
  int64_t eval_tokens = 0;  // trained ones
  double since_start_s = 0;
};

// One line without its end; numbers that are not finite are null.
std::string to_json(const StepRow& row);
std::string to_json(const EvalRow& row);

class MetricsFile {
 public:
  // An empty path: nothing is written. Throws an Error with the path and the reason when it cannot
  // be written. What the file holds stays until the first write().
  explicit MetricsFile(const std::string& path);

  // Flushed at once, so that a reader sees whole lines. Throws an Error when the disk is full.
  void write(const std::string& line);

 private:
  std::string path_;
  std::ofstream file_;
  bool started_ = false;  // the file is this run's
};

}  // namespace zeroth::trainer
