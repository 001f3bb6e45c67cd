#include "checkpoint/load.h"

#include <algorithm>
#include <utility>

#include "base/describe_exception.h"
#include "base/files/crc32c.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "base/text/diagnostics.h"
#include "checkpoint/find.h"

namespace zeroth::checkpoint {
namespace {

// LoadCandidates are rank 0's complete checkpoints, the newest first, and why others are
// incomplete.
struct LoadCandidates {
  std::vector<LoadedCheckpoint> complete;
  std::vector<std::string> faults;
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
  return nlohmann::json{{"complete", complete}, {"faults", choice.faults}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
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
  const JsonView faults = view.at("faults");
  for (size_t i = 0; i < faults.size(); ++i) choice.faults.push_back(faults.at(i).text());
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

std::optional<LoadedCheckpoint> load_newest(std::shared_ptr<FileSystem> file_system,
                                            RankGroup& ranks,
                                            const std::function<void(CheckpointReader&)>& load) {
  std::string found;
  const auto failure = capture_failure([&] {
    if (ranks.rank() == 0) found = to_string(find_candidates(*file_system));
  });
  const std::string what =
      fmt::format("looking for checkpoints in {}", file_system->path().string());
  const LoadCandidates choice = parse_candidates(commit_vote(ranks, what, failure, found).front());
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
  LoadCandidates choice;
  const auto failure = capture_failure([&] {
    if (ranks.rank() != 0) return;
    const ManifestFile file = read_manifest(*file_system, name);
    choice.complete.push_back({.name = name, .step = file.manifest.step, .crc = file.crc});
  });
  const std::string what = fmt::format("loading {}", full_path(*file_system, name).string());
  choice = parse_candidates(commit_vote(ranks, what, failure, to_string(choice)).front());
  const LoadedCheckpoint one = choice.complete.front();
  const auto reasons = try_to_load(file_system, one, ranks, load);
  if (!reasons.empty()) throw Error("{} failed: {}", what, listed(reasons));
  return one;
}

}  // namespace zeroth::checkpoint
