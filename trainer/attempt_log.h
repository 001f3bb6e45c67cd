// The log of a run's restart attempts, and its record in the output for the next attempt; a run has
// several attempts if its launcher restarts its ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/files/output_lock.h"
#include "base/machine/file_descriptor.h"
#include "base/restart_attempt.h"

namespace zeroth::trainer {

struct RunPlan;

// Name of the file in --output.
inline constexpr const char* kAttemptFile = "zeroth_rounds.json";

struct AttemptRecord {
  std::string run;  // RestartAttempt::run; empty: unknown
  int64_t batch = 1, micro_batch = 1;
  std::string run_name = {};            // directory name in OUTPUT/runs; empty: none
  std::vector<AttemptRow> rounds = {};  // the newest ones, in order of time
  int64_t step = 0;                     // steps done by the last attempt

  std::string text() const;  // content of the file
};

// Reads the record in `output`, an untrusted file; returns nothing if no attempt has left one.
// Throws an Error that begins with the path.
std::optional<AttemptRecord> read_attempts(const std::filesystem::path& output);

// AttemptFile keeps the record of the current attempt on disk.
class AttemptFile {
 public:
  // Replaces an existing record by `record` atomically, after a call of `guard`, and creates the
  // directory if it is missing. Throws an Error that names the path.
  AttemptFile(const std::filesystem::path& output, const AttemptRecord& record,
              const OutputGuard& guard = {});

  // Overwrites the record's `step` in place, within a few microseconds after every step. A failed
  // write is ignored: it only makes the count of lost steps too low.
  void step(int64_t step);

 private:
  FileDescriptor file_;
  int64_t step_offset_;  // byte offset of `step`
};

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
  const std::vector<AttemptRow>& rows() const { return record_.rounds; }
  // Returns the directory name of the first attempt in OUTPUT/runs; empty: none.
  const std::string& previous_run_name() const { return previous_run_name_; }

 private:
  const RunPlan& plan_;
  bool enabled_;
  const OutputLock* lock_ = nullptr;
  AttemptRecord record_;
  std::string previous_run_name_;
  std::optional<AttemptFile> file_;
};

}  // namespace zeroth::trainer
