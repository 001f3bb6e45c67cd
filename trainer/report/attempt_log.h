// The log of a run's restart attempts; a run has several if its launcher restarts its ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files/output_lock.h"
#include "monitor/run_page.h"
#include "trainer/attempt_record.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Returns one line without its newline. An unknown `lost` and an empty cause are null.
std::string to_json(const AttemptRow& row);

// Returns "2 after step 8 on 1 host, 4 ranks, 3 steps lost: rank 3 was killed by SIGKILL".
std::string describe(const AttemptRow& row);

// AttemptLog works on rank 0 of a run whose launcher counts attempts; elsewhere all of it does
// nothing.
class AttemptLog {
 public:
  // `run_name`: directory name in OUTPUT/runs. Keeps a reference to `plan`.
  AttemptLog(const RunPlan& plan, bool writes, const std::string& run_name);

  // Sets the lock of --output, or null, that require_ownership() checks.
  void guard(const OutputLock* lock) { lock_ = lock; }
  // Throws an OutputTakenOver if a later attempt owns the output; called before anything is written
  // there.
  void require_ownership() const;

  // Records this attempt as planned, so that the next one knows this run's batch. Throws an Error
  // that names the file.
  void begin(int64_t hosts, int64_t ranks);
  // Records that this attempt resumes after `step`.
  void resume_from(int64_t step);
  void step(int64_t step);

  bool any() const { return !record_.rounds.empty(); }
  // Returns describe() of this attempt, which may only be planned.
  std::string line() const { return describe(record_.rounds.back()); }
  // Returns lines for the metrics file: those of earlier attempts that resumed after a later step
  // than this one, whose lines were removed with their steps; then that of this attempt.
  std::vector<std::string> lines() const;
  std::vector<monitor::PageFacts::RestartAttempt> rows() const;
  // Returns the directory name of the first attempt in OUTPUT/runs; empty: none.
  const std::string& previous_run_name() const { return previous_run_name_; }

 private:
  void write();

  const RunPlan& plan_;
  bool enabled_;
  const OutputLock* lock_ = nullptr;
  AttemptRecord record_;
  std::string previous_run_name_;
  std::optional<AttemptFile> file_;
};

}  // namespace zeroth::trainer
