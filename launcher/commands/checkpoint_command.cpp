#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/files/output_lock.h"
#include "base/text/diagnostics.h"
#include "base/text/flag_errors.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "checkpoint/counters.h"
#include "checkpoint/find.h"
#include "checkpoint/foreign.h"
#include "checkpoint/owner.h"
#include "checkpoint/reader.h"
#include "checkpoint/verify.h"
#include "launcher/commands/commands.h"

namespace zeroth::launcher {
namespace {

using checkpoint::CheckpointInfo;
using checkpoint::CheckpointLocation;
using checkpoint::FileSystem;

struct CheckpointArguments {
  std::string verb;
  std::string directory;
  int64_t keep = 2;
  bool damaged = false;
  bool dry_run = false;
};

CheckpointLocation locate_checkpoints(const CheckpointArguments& args) {
  CheckpointLocation place = checkpoint::locate(args.directory);
  if (!place.file_system) throw Error("{}: there is no such folder", args.directory);
  return place;
}

// The checkpoints that DIR selects. `strays` only have a checkpoint's name.
struct ListedCheckpoints {
  std::vector<CheckpointInfo> found;
  std::vector<std::string> strays = {};
};

ListedCheckpoints list_matching(const CheckpointLocation& place) {
  ListedCheckpoints listed{checkpoint::list_checkpoints(*place.file_system)};
  std::erase_if(listed.found, [&](const CheckpointInfo& one) {
    if (place.checkpoint) return one.name != *place.checkpoint;
    if (one.is_unrelated) listed.strays.push_back(one.name);
    return one.is_unrelated;
  });
  if (place.checkpoint) return listed;
  for (const checkpoint::DirectoryEntry& entry : place.file_system->list("")) {
    if (checkpoint::parse_trainer_step(entry.name) || entry.name.ends_with(".ckpt"))
      listed.strays.push_back(entry.name);
  }
  return listed;
}

std::string no_checkpoint_reason(FileSystem& file_system, const std::string& name) {
  try {
    if (const auto foreign = checkpoint::find_foreign(file_system, name)) {
      return fmt::format("it was written by {} ({} is in it)", foreign->program,
                         shortened(foreign->marker));
    }
  } catch (const Error&) {
    // It is a file, or another user's directory.
  }
  return "it has no zeroth/manifest.json";
}

// Returns a line for each skipped directory that is not listed among the weights.
std::string skipped_lines(const CheckpointLocation& place, const std::vector<std::string>& strays,
                          const std::vector<checkpoint::WeightsDirectory>& weights) {
  std::string text;
  for (const std::string& name : strays) {
    if (std::ranges::count(weights, name, &checkpoint::WeightsDirectory::name) > 0) continue;
    text += printable(fmt::format("skipped {}: not a checkpoint of Zeroth: {}", shortened(name),
                                  no_checkpoint_reason(*place.file_system, name))) +
            "\n";
  }
  return text;
}

[[noreturn]] void throw_no_checkpoints(const CheckpointLocation& place) {
  if (const auto foreign = checkpoint::find_foreign(*place.file_system, ""))
    throw Error("{}", checkpoint::describe(*foreign, place.file_system->path()));
  throw Error("{} holds no checkpoints", place.file_system->path().string());
}

// Returns the age. A file system may report any modification time, so it is clamped.
std::string format_age(const CheckpointInfo& found) {
  constexpr double kMaxAge = 1e12;
  const double age = static_cast<double>(std::time(nullptr)) - static_cast<double>(found.written);
  return format_duration(std::clamp(age, 0.0, kMaxAge));
}

CommandResult list(const CheckpointArguments& args) {
  const CheckpointLocation place = locate_checkpoints(args);
  const auto [found, strays] = list_matching(place);
  const CheckpointInfo* newest = place.checkpoint ? nullptr : checkpoint::newest(found);
  CommandResult answer;
  answer.text = printable(place.file_system->path().string()) + "\n";
  for (const CheckpointInfo& one : found) {
    const std::string state = &one == newest     ? "complete, the newest"
                              : one.weights_only ? "weights only, cannot be resumed"
                              : one.complete()   ? "complete"
                                                 : "not complete: " + one.fault;
    answer.text += printable(fmt::format("  {:<14}  {:>10}  {:>7}  {}", one.name,
                                         format_bytes(one.bytes), format_age(one), state)) +
                   "\n";
    if (!one.complete() && !one.weights_only) answer.status = 1;
  }
  if (found.empty()) answer.text += "  no checkpoints\n";
  const auto foreign = checkpoint::find_foreign(*place.file_system, "");
  if (found.empty() && foreign) {
    answer.text += printable(checkpoint::describe(*foreign, place.file_system->path())) + "\n";
  }
  const bool is_below = place.file_system->path().filename() == "checkpoints";
  auto weights = checkpoint::list_weights_directories(
      is_below ? place.file_system->path().parent_path() : place.file_system->path());
  if (!is_below) {  // those are listed above, except Trainer's
    std::erase_if(weights, [](const auto& one) { return checkpoint::parse_step(one.name); });
  }
  if (!place.checkpoint && !weights.empty()) {
    answer.text += "Weights only, cannot be resumed:\n";
    for (const auto& one : weights) answer.text += "  " + printable(one.name) + "\n";
  }
  answer.text += skipped_lines(place, strays, weights);
  return answer;
}

void add_texts(const std::string& title, const checkpoint::StringMap& texts, std::string& text) {
  if (texts.empty()) return;
  size_t width = 0;
  for (const auto& [key, value] : texts) width = std::max(width, shortened(key).size());
  text += title + "\n";
  for (const auto& [key, value] : texts) {
    text += fmt::format("  {:{}}  {}\n", shortened(key), width, shortened(value, 120));
  }
}

// Appends each tensor with its shape and its stored states.
void add_tensors(const std::vector<checkpoint::StoredState>& states, std::string& text) {
  struct Tensor {
    std::string shape;
    std::vector<std::string> states;
  };
  std::map<std::string, Tensor> tensors;
  size_t width = 0;
  for (const checkpoint::StoredState& state : states) {
    Tensor& tensor = tensors[shortened(state.tensor)];
    tensor.shape = fmt::format("[{}]", fmt::join(state.shape, ", "));
    tensor.states.push_back(fmt::format("{} {}", shortened(state.state), state.dtype));
    width = std::max(width, shortened(state.tensor).size());
  }
  text += fmt::format("{}:\n", pluralize(std::ssize(tensors), "tensor"));
  for (const auto& [name, tensor] : tensors) {
    text += fmt::format("  {:{}}  {:<16}  {}\n", name, width, tensor.shape,
                        fmt::join(tensor.states, ", "));
  }
}

CommandResult description(const checkpoint::CheckpointReader& reader) {
  const checkpoint::Manifest& manifest = reader.manifest();
  CommandResult answer;
  checkpoint::StringMap facts = {
      {"step", fmt::format("{}", manifest.step)},
      {"run", manifest.run_id},
      {"attempt", manifest.attempt},
      {"written", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(manifest.written))},
      {"manifest", format_crc(reader.manifest_crc())}};
  if (manifest.parent)
    facts["resumed from"] = fmt::format("step {}, manifest {}", manifest.parent->step,
                                        format_crc(manifest.parent->crc));
  add_texts(printable(reader.path().string()), facts, answer.text);
  add_texts("Layout:", manifest.layout, answer.text);
  checkpoint::StringMap counters;
  for (const auto& [key, counter] : manifest.counters)
    counters[key] = checkpoint::to_string(counter);
  add_texts("Counters:", counters, answer.text);
  add_texts("Must be equal to resume:", manifest.must_equal, answer.text);
  add_texts("May change:", manifest.may_change, answer.text);
  checkpoint::StringMap files;
  for (const checkpoint::StoredFile& file : manifest.files) {
    files[file.name] =
        fmt::format("{}{}", format_bytes(file.size),
                    file.chunks.empty() ? "" : ", " + pluralize(std::ssize(file.chunks), "piece"));
  }
  add_texts("Files:", files, answer.text);
  add_tensors(reader.states(), answer.text);
  return answer;
}

CommandResult show(const CheckpointArguments& args) {
  const CheckpointLocation place = locate_checkpoints(args);
  if (!place.checkpoint && list_matching(place).found.empty()) throw_no_checkpoints(place);
  CommandResult answer;
  checkpoint::with_selected_checkpoint(place, [&](const std::string& name) {
    answer = description(checkpoint::CheckpointReader(place.file_system, name));
  });
  return answer;
}

// Returns the errors of a checkpoint; empty: none. Adds the bytes read to `bytes`.
std::vector<std::string> find_faults(FileSystem& file_system, const CheckpointInfo& found,
                                     int64_t& bytes) {
  if (!found.complete()) return {"not complete: " + found.fault};
  try {
    checkpoint::VerifyResult result = checkpoint::verify(file_system, found.name);
    bytes += result.bytes;
    return std::move(result.errors);
  } catch (const Error& error) {
    return {error.what()};
  }
}

CommandResult verify(const CheckpointArguments& args) {
  const CheckpointLocation place = locate_checkpoints(args);
  auto [found, strays] = list_matching(place);
  if (place.checkpoint && found.empty())
    found.push_back({.name = *place.checkpoint});  // a directory with another name
  if (found.empty()) throw_no_checkpoints(place);
  CommandResult answer;
  for (const CheckpointInfo& one : found) {
    int64_t bytes = 0;
    const auto faults = find_faults(*place.file_system, one, bytes);
    if (!faults.empty() && checkpoint::was_removed(*place.file_system, one)) {
      answer.text += printable_message(fmt::format(
          "{}: removed or replaced by a run while it was read, not verified\n", one.name));
      if (place.checkpoint) answer.status = 1;
      continue;
    }
    answer.text += printable_message(
        faults.empty() ? fmt::format("{}: good, {} read\n", one.name, format_bytes(bytes))
                       : fmt::format("{}: {}\n  {}\n", one.name,
                                     pluralize(std::ssize(faults), "fault"), listed(faults)));
    if (!faults.empty()) answer.status = 1;
  }
  answer.text += skipped_lines(place, strays, {});
  return answer;
}

// Returns the --output that contains these checkpoints; a run locks this directory.
std::filesystem::path find_output(const CheckpointArguments& args,
                                  const CheckpointLocation& place) {
  std::error_code unknown;
  const std::filesystem::path named = args.directory, &path = place.file_system->path();
  if (std::filesystem::exists(named / "checkpoints", unknown)) return named;
  return path.filename() == "checkpoints" ? path.parent_path() : path;
}

// Returns a note if the best model is kept although it is not among the newest `keep`.
std::string best_model_note(FileSystem& file_system, int64_t keep, const CheckpointInfo* newest) {
  const std::string name = checkpoint::step_name(newest->best_step.value_or(0));
  const auto others = checkpoint::expired_checkpoints(file_system, {.newest = keep});
  if (std::ranges::find(others, name) == others.end()) return "";
  return fmt::format("kept {}: it holds the best model of the run\n", name);
}

// Returns the checkpoints to remove. Reads all of the newest that stay: a corrupt one must not
// replace a good one. Removes damaged ones too with --damaged.
std::vector<std::string> select_prunable(const CheckpointArguments& args,
                                         const CheckpointLocation& place,
                                         const std::vector<CheckpointInfo>& found,
                                         checkpoint::RetentionPolicy& retention) {
  std::vector<std::string> names = checkpoint::expired_checkpoints(*place.file_system, retention);
  if (names.empty() && !args.damaged) return names;
  if (args.damaged && checkpoint::newest(found) == nullptr) {
    throw Error("{} holds no complete checkpoint: nothing is removed",
                place.file_system->path().string());
  }
  std::set<std::string> good;
  const auto is_kept = [&](const CheckpointInfo& one) {
    return one.complete() && !retention.damaged.contains(one.name) &&
           std::ranges::find(names, one.name) == names.end();
  };
  const auto is_bad = [&](const CheckpointInfo& one) {
    if (!is_kept(one) || good.contains(one.name)) return false;
    int64_t bytes = 0;
    const auto faults = find_faults(*place.file_system, one, bytes);
    if (faults.empty()) good.insert(one.name);
    if (!faults.empty() && !args.damaged) {
      throw Error("{} has {}: {}\nnothing is removed; --damaged removes it and keeps an older one",
                  checkpoint::full_path(*place.file_system, one.name).string(),
                  pluralize(std::ssize(faults), "fault"), faults.front());
    }
    return !faults.empty();
  };
  for (auto bad = std::ranges::find_if(found, is_bad); bad != found.end();
       bad = std::ranges::find_if(found, is_bad)) {
    retention.damaged.insert(bad->name);
    names = checkpoint::expired_checkpoints(*place.file_system, retention);
  }
  if (args.damaged && good.empty()) {
    throw Error("{} holds no good checkpoint: nothing is removed",
                place.file_system->path().string());
  }
  for (const CheckpointInfo& one : found) {
    const bool broken = !one.complete() || retention.damaged.contains(one.name);
    if (args.damaged && broken && !one.weights_only && !one.is_unrelated) names.push_back(one.name);
  }
  return names;
}

CommandResult prune(const CheckpointArguments& args) {
  const CheckpointLocation place = locate_checkpoints(args);
  if (place.checkpoint)
    throw UsageError("checkpoint prune: {} is one checkpoint; give the folder that contains it",
                     args.directory);
  // The lock excludes a run: only the run removes what it resumes from or has just written.
  std::optional<OutputLock> lock;
  if (!args.dry_run) lock.emplace(find_output(args, place));
  const std::vector<CheckpointInfo> found = checkpoint::list_checkpoints(*place.file_system);
  const CheckpointInfo* newest = checkpoint::newest(found);
  checkpoint::RetentionPolicy retention{.newest = args.keep};
  if (newest != nullptr && newest->best_step) retention.steps.insert(*newest->best_step);
  const std::vector<std::string> names = select_prunable(args, place, found, retention);
  if (!args.dry_run) checkpoint::remove_checkpoints(*place.file_system, names);
  CommandResult answer;
  for (const std::string& name : names) {
    answer.text +=
        fmt::format("{} {}\n", args.dry_run ? "would remove" : "removed", printable(name));
  }
  if (names.empty()) answer.text = "nothing to remove\n";
  if (!retention.steps.empty())
    answer.text += best_model_note(*place.file_system, args.keep, newest);
  if (lock && !lock->warning().empty()) answer.text += printable(lock->warning()) + "\n";
  return answer;
}

constexpr const char* kHelp =
    "\nlist: size, age and completeness of each checkpoint. show: layout, counters, files and "
    "tensors of the\nnewest checkpoint, or of DIR itself. verify: reads every byte. prune: removes "
    "all but the newest\nand the one with the run's best model, unless a run is active. DIR: an "
    "--output, its folder\ncheckpoints, or one checkpoint. Exit code: 0, or 1 if one is not "
    "complete or damaged. Checkpoints that\na run removes meanwhile do not count.\n";

}  // namespace

CommandResult checkpoint_command(const std::vector<std::string>& words) {
  const std::map<std::string_view, CommandResult (*)(const CheckpointArguments&)> kVerbs = {
      {"list", list}, {"show", show}, {"verify", verify}, {"prune", prune}};
  CheckpointArguments args;
  CLI::App app("Inspects or prunes a folder of checkpoints. Starts nothing.", "zeroth checkpoint");
  app.add_option("COMMAND", args.verb, "list, show, verify or prune")->required();
  app.add_option("DIR", args.directory, "Folder of the checkpoints")->required();
  app.add_option("--keep", args.keep, "prune: number of newest checkpoints to keep (default: 2)")
      ->option_text("N");
  app.add_flag("--damaged", args.damaged, "prune: also remove damaged or incomplete checkpoints");
  app.add_flag("--dry-run", args.dry_run, "prune: only show what would be removed");
  if (const std::string help = parse_subcommand(app, words); !help.empty()) return {help + kHelp};
  const auto verb = kVerbs.find(args.verb);
  if (verb == kVerbs.end())
    throw UsageError(
        "checkpoint {}: must be list, show, verify or prune (zeroth checkpoint --help)",
        shortened(args.verb));
  for (const char* const flag : {"--keep", "--damaged", "--dry-run"}) {
    if (app.count(flag) > 0 && args.verb != "prune")
      throw UsageError("checkpoint {}: {} is only valid for prune", args.verb, flag);
  }
  if (args.keep < 1)
    throw UsageError("checkpoint prune: --keep {}: at least one must be kept", args.keep);
  return verb->second(args);
}

}  // namespace zeroth::launcher
