#include "checkpoint/load.h"

#include <algorithm>
#include <utility>

#include "base/complaints.h"
#include "base/crc32c.h"
#include "base/failure_text.h"
#include "base/json.h"
#include "base/json_view.h"
#include "checkpoint/find.h"

namespace zeroth::checkpoint {
namespace {

// What rank 0 has found: those that are complete, the newest first, and why others are not.
struct Choice {
  std::vector<Loaded> complete;
  std::vector<std::string> faults;
};

Choice look(Disk& disk) {
  std::vector<Found> found = list_checkpoints(disk);
  Choice choice;
  while (const Found* best = newest(found)) {
    choice.complete.push_back({.name = best->name, .step = best->step, .crc = best->crc});
    found.erase(found.begin() + (best - found.data()));
  }
  for (const Found& one : found) {
    choice.faults.push_back(one.name + ": " +
                            (one.complete() ? "a model without states" : one.fault));
  }
  return choice;
}

std::string text_of(const Choice& choice) {
  nlohmann::json complete = nlohmann::json::array();
  for (const Loaded& one : choice.complete) complete.push_back({one.name, one.step, one.crc});
  return nlohmann::json{{"complete", complete}, {"faults", choice.faults}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Choice parse_choice(const std::string& text) {
  const nlohmann::json tree = parse_json(text, {.name = "rank 0's choice"});
  const JsonView view(tree);
  Choice choice;
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

void open_and_load(const std::shared_ptr<Disk>& disk, const Loaded& one,
                   const std::function<void(Reader&)>& load) {
  Reader reader(disk, one.name);
  if (reader.manifest_crc() != one.crc) {
    throw Damaged("{}: its manifest has crc32c {}, rank 0 found {}", reader.path().string(),
                  crc_text(reader.manifest_crc()), crc_text(one.crc));
  }
  load(reader);
}

// Why ranks could not read it; empty: all have loaded it. Throws an Error where it was something
// else.
std::vector<std::string> try_to_load(const std::shared_ptr<Disk>& disk, const Loaded& one,
                                     Ranks& ranks, const std::function<void(Reader&)>& load) {
  std::optional<std::string> refusal;
  std::string damage;
  try {
    open_and_load(disk, one, load);
  } catch (const Damaged& error) {
    damage = error.what();
  } catch (const std::exception& error) {
    refusal = failure_text(error);
  }
  const auto answers = vote(ranks, fmt::format("loading {}", one.name), refusal, damage);
  std::vector<std::string> reasons;
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    if (!answers[rank].empty()) reasons.push_back(fmt::format("rank {}: {}", rank, answers[rank]));
  }
  return reasons;
}

}  // namespace

std::optional<Loaded> load_newest(std::shared_ptr<Disk> disk, Ranks& ranks,
                                  const std::function<void(Reader&)>& load) {
  std::string found;
  const auto failure = failure_of([&] {
    if (ranks.rank() == 0) found = text_of(look(*disk));
  });
  const std::string what = fmt::format("looking for checkpoints in {}", disk->path().string());
  const Choice choice = parse_choice(vote(ranks, what, failure, found).front());
  if (choice.complete.empty() && choice.faults.empty()) return std::nullopt;
  std::vector<std::string> passed_by = choice.faults;
  for (Loaded one : choice.complete) {
    const auto reasons = try_to_load(disk, one, ranks, load);
    if (reasons.empty()) {
      one.passed_by = std::move(passed_by);
      return one;
    }
    passed_by.push_back(fmt::format("{}: {}", one.name, reasons.front()));
  }
  throw Error("no checkpoint in {} can be loaded:\n  {}", disk->path().string(), listed(passed_by));
}

Loaded load_named(std::shared_ptr<Disk> disk, const std::string& name, Ranks& ranks,
                  const std::function<void(Reader&)>& load) {
  Choice choice;
  const auto failure = failure_of([&] {
    if (ranks.rank() != 0) return;
    const ManifestFile file = read_manifest(*disk, name);
    choice.complete.push_back({.name = name, .step = file.manifest.step, .crc = file.crc});
  });
  const std::string what = fmt::format("loading {}", path_to(*disk, name).string());
  choice = parse_choice(vote(ranks, what, failure, text_of(choice)).front());
  const Loaded one = choice.complete.front();
  const auto reasons = try_to_load(disk, one, ranks, load);
  if (!reasons.empty()) throw Error("{} failed: {}", what, listed(reasons));
  return one;
}

}  // namespace zeroth::checkpoint
