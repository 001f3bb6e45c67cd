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
inline constexpr const char* kRoundFile = "zeroth_rounds.json";

// A round, as metrics and page show it.
struct RoundRow {
  int64_t round = 0;
  int64_t hosts = 1;
  int64_t ranks = 1;
  std::string cause = {};            // why the one before ended; empty: unknown
  int64_t step = 0;                  // behind which it goes on
  std::optional<int64_t> lost = {};  // steps that the one before had done beyond; none: unknown
};

struct RoundRecord {
  std::string run;  // comm::Round::run; empty: unknown
  int64_t batch = 1, micro_batch = 1;
  std::string run_name = {};          // of the folder in OUTPUT/runs; empty: there is none
  std::vector<RoundRow> rounds = {};  // the newest ones, by time
  int64_t step = 0;                   // that the last of them has done

  std::string text() const;  // of the file
};

// Somebody else's text. Throws an Error that begins with kRoundFile.
RoundRecord parse_rounds(const std::string& text);

// Of an output; nothing where no round has left one. Throws an Error with the path.
std::optional<RoundRecord> read_rounds(const std::filesystem::path& output);

// The file of the round that goes on.
class RoundFile {
 public:
  // Puts `record` in the place of what there is, in one step, for which `guard` is asked, and makes
  // the folder. Throws an Error that names the path.
  RoundFile(const std::filesystem::path& output, const RoundRecord& record,
            const OutputGuard& guard = {});

  // Its `step`, in place: for a few microseconds behind every step. What cannot be written any more
  // makes the steps lost too few, and nothing else.
  void step(int64_t step);

 private:
  FileDescriptor file_;
  int64_t place_;  // of the number
};

}  // namespace zeroth::trainer
