#include "checkpoint/find.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "base/text/diagnostics.h"
#include "checkpoint/foreign.h"
#include "checkpoint/manifest.h"
#include "checkpoint/posix_file_system.h"
#include "checkpoint/rank_group.h"
#include "checkpoint/reader.h"

namespace zeroth::checkpoint {
namespace {

constexpr int kTries = 20;  // while a run saves continuously

// Returns the bytes of all files in a directory. Ignores directories deeper than kMaxDepth.
int64_t directory_bytes(FileSystem& file_system, const std::string& directory) {
  int64_t bytes = 0;
  for (const DirectoryEntry& entry : list_tree(file_system, directory)) {
    if (entry.kind != DirectoryEntry::Kind::kFile) continue;
    if (__builtin_add_overflow(bytes, entry.size, &bytes)) return INT64_MAX;  // sparse files
  }
  return bytes;
}

// DirectoryContent is what a directory has of a checkpoint: states, or weights without Zeroth's
// files.
enum class DirectoryContent { kNothing, kWeights, kStates };
DirectoryContent classify_directory(FileSystem& file_system, const std::string& directory) {
  bool weights = false;
  for (const DirectoryEntry& entry : file_system.list(directory)) {
    if (entry.name == kChunkDirectory) return DirectoryContent::kStates;
    weights |= entry.name == "config.json" || entry.name.ends_with(".safetensors");
  }
  return weights ? DirectoryContent::kWeights : DirectoryContent::kNothing;
}

CheckpointInfo inspect_once(FileSystem& file_system, const DirectoryEntry& entry, int64_t step) {
  CheckpointInfo found{.name = entry.name, .step = step, .written = entry.modified};
  try {
    const ManifestFile file = read_manifest(file_system, entry.name);
    found.bytes = file.size;
    found.weights_only = true;
    for (const StoredFile& stored : file.manifest.files) {
      found.bytes += stored.size;
      found.weights_only = found.weights_only && stored.chunks.empty();
    }
    found.written = file.manifest.written;
    found.attempt = parse_attempt(file.manifest.attempt);
    found.crc = file.crc;
    const auto best = file.manifest.counters.find(std::string(kBestCounter));
    if (best != file.manifest.counters.end()) {
      if (const auto* saved = std::get_if<int64_t>(&best->second)) found.best_step = *saved;
    }
    return found;
  } catch (const CorruptCheckpoint& damage) {
    found.weights_only = false;
    found.fault = damage.what();
  }
  try {
    found.bytes = directory_bytes(file_system, entry.name);
    const DirectoryContent content = classify_directory(file_system, entry.name);
    found.weights_only = content == DirectoryContent::kWeights;
    found.is_unrelated = content == DirectoryContent::kNothing;
  } catch (const Error&) {
    // An incomplete checkpoint may be unreadable, too.
  }
  if (found.weights_only) {
    found.fault = fmt::format("{} holds a model without states: a run cannot resume from it",
                              full_path(file_system, entry.name).string());
  }
  return found;
}

// Returns nothing if a run has removed the checkpoint. Reads an incomplete one a second time,
// because files of two checkpoints can be visible while a run replaces one.
std::optional<CheckpointInfo> inspect_checkpoint(FileSystem& file_system,
                                                 const DirectoryEntry& entry, int64_t step) {
  CheckpointInfo found = inspect_once(file_system, entry, step);
  if (found.complete()) return found;
  if (!exists(file_system, "", entry.name)) return std::nullopt;
  found = inspect_once(file_system, entry, step);
  if (!found.complete() && !exists(file_system, "", entry.name)) return std::nullopt;
  return found;
}

// Returns the checkpoints found in one pass. Sets `left` if one was removed while it was read.
std::vector<CheckpointInfo> list_once(FileSystem& file_system, bool& left) {
  const std::vector<DirectoryEntry> entries = file_system.list("");
  std::vector<CheckpointInfo> found;
  std::set<int64_t> steps;
  left = false;
  for (const DirectoryEntry& entry : entries) {
    const auto step = parse_step(entry.name);
    if (!step || entry.kind != DirectoryEntry::Kind::kDirectory) continue;
    auto one = inspect_checkpoint(file_system, entry, *step);
    left = left || !one;
    if (!one) continue;
    steps.insert(*step);
    found.push_back(std::move(*one));
  }
  for (const DirectoryEntry& entry : entries) {
    const auto step = parse_old_step(entry.name);
    if (!step || entry.kind != DirectoryEntry::Kind::kDirectory || steps.contains(*step)) continue;
    if (auto one = inspect_checkpoint(file_system, entry, *step)) found.push_back(std::move(*one));
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.step < b.step; });
  return found;
}

// Returns the newest checkpoint in a directory. Throws an Error that describes the contents if
// there is none.
CheckpointInfo newest_in(FileSystem& file_system) {
  std::vector<CheckpointInfo> found = list_checkpoints(file_system);
  if (const CheckpointInfo* best = newest(found)) return *best;
  std::erase_if(found, [](const CheckpointInfo& one) { return one.is_unrelated; });
  if (found.empty()) {
    const auto foreign = find_foreign(file_system, "");
    if (foreign) throw Error("{}", describe(*foreign, file_system.path()));
  }
  throw Error("{} holds no complete checkpoint{}", file_system.path().string(),
              found.empty() ? "" : ": " + found.back().fault);
}

// Resolves "out/checkpoint-8", Trainer's name for out/checkpoints/step-8.
std::filesystem::path resolve_trainer_name(const std::filesystem::path& named) {
  const std::filesystem::path path = named.has_filename() ? named : named.parent_path();
  const auto step = parse_trainer_step(path.filename().string());
  std::error_code unknown;
  if (!step || std::filesystem::exists(path, unknown)) return named;
  const std::filesystem::path ours = path.parent_path() / "checkpoints" / step_name(*step);
  return std::filesystem::exists(ours, unknown) ? ours : named;
}

// LoadCandidates are rank 0's complete checkpoints, the newest first, and why others are
// incomplete.
struct LoadCandidates {
  std::vector<LoadedCheckpoint> complete = {};
  std::vector<std::string> faults = {};
};

LoadCandidates find_candidates(FileSystem& file_system) {
  std::vector<CheckpointInfo> found = list_checkpoints(file_system);
  LoadCandidates choice;
  while (const CheckpointInfo* best = newest(found)) {
    choice.complete.push_back({.name = best->name, .step = best->step, .crc = best->crc});
    found.erase(found.begin() + (best - found.data()));
  }
  for (const CheckpointInfo& one : found) {
    choice.faults.push_back(one.name + ": " +
                            (one.complete() ? "a model without states" : one.fault));
  }
  return choice;
}

std::string to_string(const LoadCandidates& choice) {
  nlohmann::json complete = nlohmann::json::array();
  for (const LoadedCheckpoint& one : choice.complete)
    complete.push_back({one.name, one.step, one.crc});
  return to_line(nlohmann::json{{"complete", complete}, {"faults", choice.faults}});
}

LoadCandidates parse_candidates(const std::string& text) {
  const nlohmann::json tree = parse_json(text, {.name = "rank 0's choice"});
  const JsonView view(tree);
  LoadCandidates choice;
  const JsonView complete = view.at("complete");
  for (size_t i = 0; i < complete.size(); ++i) {
    const JsonView one = complete.at(i);
    choice.complete.push_back({.name = one.at(size_t{0}).text(),
                               .step = one.at(1).integer(0, INT64_MAX),
                               .crc = static_cast<uint32_t>(one.at(2).integer(0, UINT32_MAX))});
  }
  choice.faults = view.at("faults").texts();
  return choice;
}

void open_and_load(const std::shared_ptr<FileSystem>& file_system, const LoadedCheckpoint& one,
                   const std::function<void(CheckpointReader&)>& load) {
  CheckpointReader reader(file_system, one.name);
  if (reader.manifest_crc() != one.crc) {
    throw CorruptCheckpoint("{}: its manifest has crc32c {}, rank 0 found {}",
                            reader.path().string(), format_crc(reader.manifest_crc()),
                            format_crc(one.crc));
  }
  load(reader);
}

// Returns what `find` returns on rank 0. Throws VoteFailed if it throws. Collective.
template <typename Find>
LoadCandidates choose_on_rank_zero(RankGroup& ranks, std::string_view what, const Find& find) {
  LoadCandidates choice;
  const auto failure = capture_failure([&] {
    if (ranks.rank() == 0) choice = find();
  });
  return parse_candidates(commit_vote(ranks, what, failure, to_string(choice)).front());
}

// Returns why ranks could not read the checkpoint; empty if all have loaded it. Throws an Error for
// any other failure.
std::vector<std::string> try_to_load(const std::shared_ptr<FileSystem>& file_system,
                                     const LoadedCheckpoint& one, RankGroup& ranks,
                                     const std::function<void(CheckpointReader&)>& load) {
  std::optional<std::string> refusal;
  std::string damage;
  try {
    open_and_load(file_system, one, load);
  } catch (const CorruptCheckpoint& error) {
    damage = error.what();
  } catch (const std::exception& error) {
    refusal = describe_exception(error);
  }
  const auto answers = commit_vote(ranks, fmt::format("loading {}", one.name), refusal, damage);
  std::vector<std::string> reasons;
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    if (!answers[rank].empty()) reasons.push_back(fmt::format("rank {}: {}", rank, answers[rank]));
  }
  return reasons;
}

}  // namespace

// Retries if a pass finds none: a run that keeps one checkpoint removes it once there is a newer
// one, which the pass may have missed. One pass can miss both without a trace, because the newer
// one may come where the listing of the directory has passed: only a second one tells.
std::vector<CheckpointInfo> list_checkpoints(FileSystem& file_system) {
  bool left = false;
  std::vector<CheckpointInfo> found = list_once(file_system, left);
  for (int tries = 1; tries < kTries && found.empty() && (left || tries == 1); ++tries) {
    found = list_once(file_system, left);
  }
  return found;
}

const CheckpointInfo* newest(const std::vector<CheckpointInfo>& found) {
  const CheckpointInfo* best = nullptr;
  const auto order = [](const CheckpointInfo& one) { return std::tuple(one.attempt, one.step); };
  for (const CheckpointInfo& one : found) {
    if (one.complete() && !one.weights_only && (best == nullptr || order(one) > order(*best)))
      best = &one;
  }
  return best;
}

bool was_removed(FileSystem& file_system, const CheckpointInfo& found) {
  if (!exists(file_system, "", found.name)) return true;
  try {
    return found.complete() && read_manifest(file_system, found.name).crc != found.crc;
  } catch (const CorruptCheckpoint&) {
    return !exists(file_system, "", found.name);
  }
}

void with_selected_checkpoint(const CheckpointLocation& place,
                              const std::function<void(const std::string&)>& action) {
  FileSystem& file_system = *place.file_system;
  for (int tries = 1;; ++tries) {
    const CheckpointInfo chosen =
        place.checkpoint ? CheckpointInfo{.name = *place.checkpoint} : newest_in(file_system);
    try {
      return action(chosen.name);
    } catch (const Error&) {
      if (place.checkpoint ? exists(file_system, "", chosen.name)
                           : !was_removed(file_system, chosen))
        throw;
      if (!place.checkpoint && tries < kTries) continue;
      throw Error(
          "{} was removed while it was read: a run that saves there keeps only its newest "
          "checkpoints. Name one that stays, or the folder.",
          full_path(file_system, chosen.name).string());
    }
  }
}

CheckpointLocation locate(const std::filesystem::path& given) {
  const std::filesystem::path path = resolve_trainer_name(given);
  if (path.empty()) return {};
  if (auto below = PosixFileSystem::find(path / "checkpoints"))
    return {std::move(below), std::nullopt};
  auto file_system = PosixFileSystem::find(path);
  if (!file_system) return {};
  if (!parse_step(file_system->path().filename().string()) &&
      !parse_old_step(file_system->path().filename().string()) &&
      !exists(*file_system, "", std::string(kChunkDirectory))) {
    return {std::move(file_system), std::nullopt};
  }
  auto above = PosixFileSystem::find(file_system->path().parent_path());
  return {std::move(above), file_system->path().filename().string()};
}

std::vector<WeightsDirectory> list_weights_directories(const std::filesystem::path& output) {
  std::vector<WeightsDirectory> found;
  const auto file_system = PosixFileSystem::find(output);
  if (!file_system) return found;
  for (const DirectoryEntry& entry : file_system->list("")) {
    if (entry.kind != DirectoryEntry::Kind::kDirectory) continue;
    auto step = parse_step(entry.name);
    if (!step) step = parse_trainer_step(entry.name);
    if (!step) continue;
    try {
      if (classify_directory(*file_system, entry.name) == DirectoryContent::kWeights)
        found.push_back({entry.name, *step});
    } catch (const Error&) {
      // Another program's directory.
    }
  }
  std::sort(found.begin(), found.end(), [](const WeightsDirectory& a, const WeightsDirectory& b) {
    return std::pair(a.step, a.name) < std::pair(b.step, b.name);
  });
  return found;
}

std::optional<LoadedCheckpoint> load_newest(std::shared_ptr<FileSystem> file_system,
                                            RankGroup& ranks,
                                            const std::function<void(CheckpointReader&)>& load) {
  const LoadCandidates choice = choose_on_rank_zero(
      ranks, fmt::format("looking for checkpoints in {}", file_system->path().string()),
      [&] { return find_candidates(*file_system); });
  if (choice.complete.empty() && choice.faults.empty()) return std::nullopt;
  std::vector<std::string> skipped = choice.faults;
  for (LoadedCheckpoint one : choice.complete) {
    const auto reasons = try_to_load(file_system, one, ranks, load);
    if (reasons.empty()) {
      one.skipped = std::move(skipped);
      return one;
    }
    skipped.push_back(fmt::format("{}: {}", one.name, reasons.front()));
  }
  throw Error("no checkpoint in {} can be loaded:\n  {}", file_system->path().string(),
              listed(skipped));
}

LoadedCheckpoint load_named(std::shared_ptr<FileSystem> file_system, const std::string& name,
                            RankGroup& ranks, const std::function<void(CheckpointReader&)>& load) {
  const std::string what = fmt::format("loading {}", full_path(*file_system, name).string());
  const LoadCandidates choice = choose_on_rank_zero(ranks, what, [&]() -> LoadCandidates {
    const ManifestFile file = read_manifest(*file_system, name);
    return {.complete = {{.name = name, .step = file.manifest.step, .crc = file.crc}}};
  });
  const LoadedCheckpoint& one = choice.complete.front();
  const auto reasons = try_to_load(file_system, one, ranks, load);
  if (!reasons.empty()) throw Error("{} failed: {}", what, listed(reasons));
  return one;
}

}  // namespace zeroth::checkpoint
