#include "checkpoint/find.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "checkpoint/foreign.h"
#include "checkpoint/manifest.h"
#include "checkpoint/real_disk.h"

namespace zeroth::checkpoint {
namespace {

constexpr int kTries = 20;  // beside a run that saves all the time
constexpr int64_t kMostHint = 100;

// Folders deeper than kMaxDepth are not counted.
int64_t bytes_in(Disk& disk, const std::string& folder, size_t levels = kMaxDepth) {
  int64_t bytes = 0;
  for (const Entry& entry : disk.list(folder)) {
    int64_t more = 0;
    if (entry.kind == Entry::Kind::kFile) more = entry.size;
    if (entry.kind == Entry::Kind::kFolder && levels > 0)
      more = bytes_in(disk, joined(folder, entry.name), levels - 1);
    if (__builtin_add_overflow(bytes, more, &bytes)) return INT64_MAX;  // sparse files
  }
  return bytes;
}

// What a folder holds of a checkpoint: states, or a model and nothing of ours.
enum class Content { kNothing, kWeights, kStates };
Content content_of(Disk& disk, const std::string& folder) {
  bool weights = false;
  for (const Entry& entry : disk.list(folder)) {
    if (entry.name == kPieceFolder) return Content::kStates;
    weights |= entry.name == "config.json" || entry.name.ends_with(".safetensors");
  }
  return weights ? Content::kWeights : Content::kNothing;
}

std::string reason_of_weights(const Disk& disk, const std::string& name) {
  return fmt::format("{} holds a model without states: no run goes on from it",
                     path_to(disk, name).string());
}

Found look_once(Disk& disk, const Entry& entry, int64_t step) {
  Found found{.name = entry.name, .step = step, .written = entry.modified};
  try {
    const ManifestFile file = read_manifest(disk, entry.name);
    found.bytes = file.size;
    found.weights_only = true;
    for (const StoredFile& stored : file.manifest.files) {
      found.bytes += stored.size;
      found.weights_only = found.weights_only && stored.pieces.empty();
    }
    found.written = file.manifest.written;
    found.attempt = parse_attempt(file.manifest.attempt);
    found.crc = file.crc;
    const auto best = file.manifest.counters.find(std::string(kBestCounter));
    if (best != file.manifest.counters.end()) {
      if (const auto* saved = std::get_if<int64_t>(&best->second)) found.best_step = *saved;
    }
    return found;
  } catch (const Damaged& damage) {
    found.weights_only = false;
    found.fault = damage.what();
  }
  try {
    found.bytes = bytes_in(disk, entry.name);
    const Content content = content_of(disk, entry.name);
    found.weights_only = content == Content::kWeights;
    found.stray = content == Content::kNothing;
  } catch (const Error&) {
    // What is not complete may be not readable, too.
  }
  if (found.weights_only) found.fault = reason_of_weights(disk, entry.name);
  return found;
}

// Nothing where a run has removed it. Files of two checkpoints may be seen while a run replaces
// one, so that one with a fault is read a second time.
std::optional<Found> look_at(Disk& disk, const Entry& entry, int64_t step) {
  Found found = look_once(disk, entry, step);
  if (found.complete()) return found;
  if (!holds(disk, "", entry.name)) return std::nullopt;
  found = look_once(disk, entry, step);
  if (!found.complete() && !holds(disk, "", entry.name)) return std::nullopt;
  return found;
}

// The checkpoints that one pass finds. Sets `left` where one was removed while it was read.
std::vector<Found> list_once(Disk& disk, bool& left) {
  const std::vector<Entry> entries = disk.list("");
  std::vector<Found> found;
  std::set<int64_t> steps;
  left = false;
  for (const Entry& entry : entries) {
    const auto step = step_of(entry.name);
    if (!step || entry.kind != Entry::Kind::kFolder) continue;
    auto one = look_at(disk, entry, *step);
    left = left || !one;
    if (!one) continue;
    steps.insert(*step);
    found.push_back(std::move(*one));
  }
  for (const Entry& entry : entries) {
    const auto step = step_of_old(entry.name);
    if (!step || entry.kind != Entry::Kind::kFolder || steps.contains(*step)) continue;
    if (auto one = look_at(disk, entry, *step)) found.push_back(std::move(*one));
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.step < b.step; });
  return found;
}

}  // namespace

// A run that keeps one checkpoint removes it once there is a newer one, which a look may have
// missed.
std::vector<Found> list_checkpoints(Disk& disk) {
  bool left = false;
  std::vector<Found> found = list_once(disk, left);
  for (int tries = 1; tries < kTries && found.empty() && left; ++tries) {
    found = list_once(disk, left);
  }
  return found;
}

const Found* newest(const std::vector<Found>& found) {
  const Found* best = nullptr;
  const auto order = [](const Found& one) { return std::tuple(one.attempt, one.step); };
  for (const Found& one : found) {
    if (one.complete() && !one.weights_only && (best == nullptr || order(one) > order(*best)))
      best = &one;
  }
  return best;
}

bool has_left(Disk& disk, const Found& found) {
  if (!holds(disk, "", found.name)) return true;
  try {
    return found.complete() && read_manifest(disk, found.name).crc != found.crc;
  } catch (const Damaged&) {
    return !holds(disk, "", found.name);
  }
}

namespace {

// The newest one of a folder, or an Error that says what is there instead.
Found newest_in(Disk& disk) {
  std::vector<Found> found = list_checkpoints(disk);
  if (const Found* best = newest(found)) return *best;
  std::erase_if(found, [](const Found& one) { return one.stray; });
  if (found.empty()) {
    const auto foreign = find_foreign(disk, "");
    if (foreign) throw Error("{}", describe(*foreign, disk.path()));
  }
  throw Error("{} holds no complete checkpoint{}", disk.path().string(),
              found.empty() ? "" : ": " + found.back().fault);
}

}  // namespace

void with_chosen(const Place& place, const std::function<void(const std::string&)>& action) {
  Disk& disk = *place.disk;
  for (int tries = 1;; ++tries) {
    const Found chosen = place.one ? Found{.name = *place.one} : newest_in(disk);
    try {
      return action(chosen.name);
    } catch (const Error&) {
      if (place.one ? holds(disk, "", chosen.name) : !has_left(disk, chosen)) throw;
      if (!place.one && tries < kTries) continue;
      throw Error(
          "{} was removed while it was read: a run that saves there keeps only its newest "
          "checkpoints. Name one that stays, or the folder.",
          path_to(disk, chosen.name).string());
    }
  }
}

namespace {

// "out/checkpoint-8", as Trainer names what is out/checkpoints/step-8 here.
std::filesystem::path as_ours(const std::filesystem::path& named) {
  const std::filesystem::path path = named.has_filename() ? named : named.parent_path();
  const auto step = step_of_trainer(path.filename().string());
  std::error_code unknown;
  if (!step || std::filesystem::exists(path, unknown)) return named;
  const std::filesystem::path ours = path.parent_path() / "checkpoints" / step_name(*step);
  return std::filesystem::exists(ours, unknown) ? ours : named;
}

}  // namespace

Place locate(const std::filesystem::path& given) {
  const std::filesystem::path path = as_ours(given);
  if (path.empty()) return {};
  if (auto below = RealDisk::find(path / "checkpoints")) return {std::move(below), std::nullopt};
  auto disk = RealDisk::find(path);
  if (!disk) return {};
  if (!step_of(disk->path().filename().string()) &&
      !step_of_old(disk->path().filename().string()) &&
      !holds(*disk, "", std::string(kPieceFolder))) {
    return {std::move(disk), std::nullopt};
  }
  auto above = RealDisk::find(disk->path().parent_path());
  return {std::move(above), disk->path().filename().string()};
}

std::vector<WeightsOnly> list_weights(const std::filesystem::path& output) {
  std::vector<WeightsOnly> found;
  const auto disk = RealDisk::find(output);
  if (!disk) return found;
  for (const Entry& entry : disk->list("")) {
    if (entry.kind != Entry::Kind::kFolder) continue;
    auto step = step_of(entry.name);
    if (!step) step = step_of_trainer(entry.name);
    if (!step) continue;
    try {
      if (content_of(*disk, entry.name) == Content::kWeights) found.push_back({entry.name, *step});
    } catch (const Error&) {
      // Somebody else's.
    }
  }
  std::sort(found.begin(), found.end(), [](const WeightsOnly& a, const WeightsOnly& b) {
    return std::pair(a.step, a.name) < std::pair(b.step, b.name);
  });
  return found;
}

std::optional<int64_t> latest_hint(Disk& disk) {
  try {
    std::string text = read_text(disk, std::string(kLatest), kMostHint);
    while (text.ends_with('\n')) text.pop_back();
    return step_of(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace zeroth::checkpoint
