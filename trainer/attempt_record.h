// The record of restart attempts that a run leaves in its output for the next attempt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/files/output_guard.h"
#include "base/machine/file_descriptor.h"

namespace zeroth::trainer {

// Name of the file in --output.
inline constexpr const char* kAttemptFile = "zeroth_rounds.json";

// One restart attempt, as metrics and the page show it.
struct AttemptRow {
  int64_t round = 0;
  int64_t hosts = 1;
  int64_t ranks = 1;
  std::string cause = {};            // why the previous attempt ended; empty: unknown
  int64_t step = 0;                  // step after which it resumes
  std::optional<int64_t> lost = {};  // later steps of the previous attempt; none: unknown
};

struct AttemptRecord {
  std::string run;  // comm::RestartAttempt::run; empty: unknown
  int64_t batch = 1, micro_batch = 1;
  std::string run_name = {};            // directory name in OUTPUT/runs; empty: none
  std::vector<AttemptRow> rounds = {};  // the newest ones, in order of time
  int64_t step = 0;                     // steps done by the last attempt

  std::string text() const;  // content of the file
};

// Parses untrusted text. Throws an Error that begins with kAttemptFile.
AttemptRecord parse_attempts(const std::string& text);

// Reads the record in `output`; returns nothing if no attempt has left one. Throws an Error with
// the path.
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

}  // namespace zeroth::trainer
