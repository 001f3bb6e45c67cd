// The names of what lies in a folder of checkpoints. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zeroth::checkpoint {

// The largest step, epoch, number of an attempt and other count that is read from a name, a
// manifest or a state: sums and differences of some of them do not overflow, and a double holds
// each exactly.
inline constexpr int64_t kMaxCount = 1'000'000'000'000'000;

inline constexpr std::string_view kLatest = "latest";    // the newest one's name: only a hint
inline constexpr std::string_view kTemporary = ".tmp-";  // being written
inline constexpr std::string_view kTrash = ".trash-";    // being removed
inline constexpr std::string_view kOld = ".old-";        // replaced, while that takes two steps
inline constexpr std::string_view kOwner = ".owner-";    // who saves here: ".owner-3"

// Of a manifest's counters: the step whose checkpoint holds the best model of the run.
inline constexpr std::string_view kBestCounter = "client.best.saved_step";

// A try to save: the owner's epoch, and the number of the try by this owner. Grows in a folder,
// whatever clocks say and wherever a run went on from: the newest checkpoint has the largest.
struct SaveAttempt {
  int64_t generation = 0, index = 0;
  auto operator<=>(const SaveAttempt&) const = default;
};

std::string to_string(const SaveAttempt& attempt);         // "3.1"
SaveAttempt parse_attempt(std::string_view text);          // that of another program: {0, 0}
std::string step_name(int64_t step);                       // "step-8"
std::optional<int64_t> parse_step(std::string_view name);  // only of what step_name() gives
// The step of "checkpoint-8", as Hugging Face's Trainer names its folders.
std::optional<int64_t> parse_trainer_step(std::string_view name);
// Of the last part of a path, also where it is a name of parse_old_step().
std::optional<int64_t> step_from_path(std::string_view path);
std::string temporary_name(int64_t step, const SaveAttempt& attempt);  // ".tmp-step-8-3.1"
// Of ".old-step-8-3.1": the step whose name it had.
std::optional<int64_t> parse_old_step(std::string_view name);
std::optional<int64_t> parse_owner_generation(std::string_view name);

}  // namespace zeroth::checkpoint
