// What a run tells of its rounds: it has several where its launcher starts ranks anew.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/output_lock.h"
#include "monitor/run_page.h"
#include "trainer/attempt_record.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// One line without its end. `lost` that is not known, and an empty cause, are null.
std::string to_json(const AttemptRow& row);

// "2 behind step 8 on 1 host, 4 ranks, 3 steps lost: rank 3 was killed by SIGKILL"
std::string describe(const AttemptRow& row);

// On rank 0; elsewhere, and where nobody counts rounds, all of it does nothing.
class AttemptLog {
 public:
  // `run_name`: of the folder in OUTPUT/runs. Keeps a reference to `plan`.
  AttemptLog(const RunPlan& plan, bool writes, const std::string& run_name);

  // `lock` of --output, or null: what require_ownership() asks.
  void guard(const OutputLock* lock) { lock_ = lock; }
  // Throws an OutputTakenOver where a later round has the output: it comes before all that is
  // written there.
  void require_ownership() const;

  // This round, as far as it is planned: from here on the next one knows this run's batch. Throws
  // an Error that names the file.
  void begin(int64_t hosts, int64_t ranks);
  // It does go on behind `step`.
  void resume_from(int64_t step);
  void step(int64_t step);

  bool any() const { return !record_.rounds.empty(); }
  // describe() of this one, which may be planned only.
  std::string line() const { return describe(record_.rounds.back()); }
  // Of the metrics file: those of rounds before that go on behind a later step than this one, whose
  // lines were cut with their steps; then this round's.
  std::vector<std::string> lines() const;
  std::vector<monitor::PageFacts::RestartAttempt> rows() const;
  // The folder of the first round in OUTPUT/runs; empty: there is none.
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
