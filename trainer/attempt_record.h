// What a run whose ranks may be started anew leaves in its output for its next round.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/output_guard.h"

namespace zeroth::trainer {

// The file in --output.
inline constexpr const char* kAttemptFile = "zeroth_rounds.json";

// A round, as metrics and page show it.
struct AttemptRow {
  int64_t round = 0;
  int64_t hosts = 1;
  int64_t ranks = 1;
  std::string cause = {};            // why the one before ended; empty: unknown
  int64_t step = 0;                  // behind which it goes on
  std::optional<int64_t> lost = {};  // steps that the one before had done beyond; none: unknown
};

struct AttemptRecord {
  std::string run;  // comm::RestartAttempt::run; empty: unknown
  int64_t batch = 1, micro_batch = 1;
  std::string run_name = {};            // of the folder in OUTPUT/runs; empty: there is none
  std::vector<AttemptRow> rounds = {};  // the newest ones, by time
  int64_t step = 0;                     // that the last of them has done

  std::string text() const;  // of the file
};

// Somebody else's text. Throws an Error that begins with kAttemptFile.
AttemptRecord parse_attempts(const std::string& text);

// Of an output; nothing where no round has left one. Throws an Error with the path.
std::optional<AttemptRecord> read_attempts(const std::filesystem::path& output);

// The file of the round that goes on.
class AttemptFile {
 public:
  // Puts `record` in the place of what there is, in one step, for which `guard` is asked, and makes
  // the folder. Throws an Error that names the path.
  AttemptFile(const std::filesystem::path& output, const AttemptRecord& record,
              const OutputGuard& guard = {});

  // Its `step`, in place: for a few microseconds behind every step. What cannot be written any more
  // makes the steps lost too few, and nothing else.
  void step(int64_t step);

 private:
  FileDescriptor file_;
  int64_t step_offset_;  // of the number
};

}  // namespace zeroth::trainer
