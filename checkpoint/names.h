// The names of the entries in a directory of checkpoints. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zeroth::checkpoint {

// Maximum step, generation, attempt index or other count that is read from a name, a manifest or a
// state. Sums and differences of a few such values do not overflow, and a double holds each
// exactly.
inline constexpr int64_t kMaxCount = 1'000'000'000'000'000;

inline constexpr std::string_view kLatest = "latest";    // names the newest checkpoint; only a hint
inline constexpr std::string_view kTemporary = ".tmp-";  // being written
inline constexpr std::string_view kTrash = ".trash-";    // being removed
inline constexpr std::string_view kOld = ".old-";        // replaced, while that takes two steps
inline constexpr std::string_view kOwner = ".owner-";    // the process that saves here: ".owner-3"

// Manifest counter with the step of the checkpoint that holds the best model of the run.
inline constexpr std::string_view kBestCounter = "client.best.saved_step";

// A SaveAttempt is the owner's generation and the index of the attempt by this owner. Attempts grow
// within a directory, independent of clocks and of the resumed step: the newest checkpoint has the
// largest.
struct SaveAttempt {
  int64_t generation = 0, index = 0;
  auto operator<=>(const SaveAttempt&) const = default;
};

std::string to_string(const SaveAttempt& attempt);         // "3.1"
SaveAttempt parse_attempt(std::string_view text);          // {0, 0} if another program wrote it
std::string step_name(int64_t step);                       // "step-8"
std::optional<int64_t> parse_step(std::string_view name);  // inverse of step_name()
// Returns the step of "checkpoint-8", as Hugging Face's Trainer names its directories.
std::optional<int64_t> parse_trainer_step(std::string_view name);
// Returns the step in the last part of a path, also for a name that parse_old_step() accepts.
std::optional<int64_t> step_from_path(std::string_view path);
std::string temporary_name(int64_t step, const SaveAttempt& attempt);  // ".tmp-step-8-3.1"
// Returns the step whose name ".old-step-8-3.1" had.
std::optional<int64_t> parse_old_step(std::string_view name);
std::optional<int64_t> parse_owner_generation(std::string_view name);

}  // namespace zeroth::checkpoint
