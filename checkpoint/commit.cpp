#include "checkpoint/commit.h"

#include <algorithm>
#include <ctime>
#include <map>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/units.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kChunk = int64_t{4} << 20;
constexpr int64_t kMargin = int64_t{4} << 20;  // manifest, folders, blocks that are not full

// Files below a folder, relative to it, with their sizes; and the folders, the innermost first.
struct Tree {
  std::map<std::string, int64_t> files;
  std::vector<std::string> folders;
};

void look_through(Disk& disk, const std::string& root, const std::string& below, Tree& tree) {
  for (const Entry& entry : disk.list(below.empty() ? root : joined(root, below))) {
    const std::string name = joined(below, entry.name);
    if (entry.kind == Entry::Kind::kFile) {
      tree.files[name] = entry.size;
    } else if (entry.kind == Entry::Kind::kFolder) {
      look_through(disk, root, name, tree);
      tree.folders.push_back(name);
    } else {
      throw Error("{} is no regular file", path_to(disk, joined(root, name)).string());
    }
  }
}

// What ranks say and what is there is the same, and on the disk: a file of pieces was synced by
// its writer, others are here.
void check_and_sync(Disk& disk, const std::string& folder, const Tree& tree,
                    const StoredFile& file) {
  const auto there = tree.files.find(file.name);
  const std::string path = path_to(disk, joined(folder, file.name)).string();
  if (there == tree.files.end()) throw Error("{} is not there, a rank has written it", path);
  if (there->second != file.size) {
    throw Error("{} has {} bytes, ranks have written {}", path, there->second, file.size);
  }
  if (file.pieces.empty()) disk.sync_file(joined(folder, file.name));
}

// Only a hint: a save need not wait until it is on the disk.
void write_latest(Disk& disk, const std::string& name) {
  const std::string fresh = std::string(kTemporary) + std::string(kLatest);
  remove_tree(disk, fresh);
  const std::string text = name + "\n";
  const auto file = disk.create(fresh, std::ssize(text));
  write_all(*file, std::as_bytes(std::span(text)), 0);
  file->close();
  disk.rename(fresh, std::string(kLatest));
}

// What rank 0 tells of its commit.
std::string answer_of(const Committed& done) {
  return nlohmann::json{{"crc", done.crc}, {"warnings", done.warnings}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Committed parse_committed(std::string name, const std::string& text) {
  const nlohmann::json tree = parse_json(text, {.name = "rank 0's commit"});
  const JsonView view(tree);
  Committed done{.name = std::move(name),
                 .crc = static_cast<uint32_t>(view.at("crc").integer(0, UINT32_MAX))};
  const JsonView warnings = view.at("warnings");
  for (size_t i = 0; i < warnings.size(); ++i) done.warnings.push_back(warnings.at(i).text());
  return done;
}

}  // namespace

StoredFile describe_file(Disk& disk, const std::string& folder, const std::string& name) {
  const std::string whole = joined(folder, name);
  disk.sync_file(whole);
  const auto file = disk.open(whole);
  StoredFile stored{.name = name, .size = file->size()};
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kChunk, stored.size)));
  for (int64_t at = 0; at < stored.size; at += kChunk) {
    const auto chunk =
        std::span(buffer).first(static_cast<size_t>(std::min(kChunk, stored.size - at)));
    read_all(*file, chunk, at, path_to(disk, whole));
    stored.crc = crc32c(chunk, stored.crc);
  }
  return stored;
}

Saver::Saver(std::shared_ptr<Disk> disk, Ranks& ranks, SaverOptions options)
    : disk_(std::move(disk)), ranks_(ranks), options_(std::move(options)) {
  const auto failure = failure_of([&] {
    if (!commits()) return;
    owner_ = Owner::take(disk_, options_.who);
    clear_leftovers(*disk_);
  });
  const std::string epoch = owner_ ? fmt::format("{}", owner_->epoch()) : "";
  const auto answers = vote(
      ranks_, fmt::format("taking {} for checkpoints", disk_->path().string()), failure, epoch);
  epoch_ = parse_number<int64_t>(answers.front()).value_or(0);
}

Save Saver::begin(int64_t step, int64_t bytes) {
  Save save(*this, step, {epoch_, ++attempts_});
  const auto answers =
      vote(ranks_, save.name_of("beginning"), std::nullopt, fmt::format("{}", bytes));
  save.stage("beginning", [&] {
    if (!commits()) return;
    int64_t all = kMargin;
    for (const std::string& answer : answers) all += parse_number<int64_t>(answer).value_or(0);
    owner_->check();
    clear_leftovers(*disk_);
    const int64_t free = disk_->free_bytes();
    if (free < all) {
      throw Error("{}: a checkpoint takes {} and {} are free there", disk_->path().string(),
                  format_bytes(all), format_bytes(free));
    }
    disk_->make_folder(save.folder_);
    disk_->make_folder(joined(save.folder_, std::string(kPieceFolder)));
  });
  return save;
}

void Saver::put_in_place(const Save& save, bool& committed) const {
  const std::string name = step_name(save.step_);
  const auto entries = disk_->list("");
  const auto there = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  if (there != entries.end() && there->kind != Entry::Kind::kFolder) {
    throw Error("{} is in the way: it is no folder", path_to(*disk_, name).string());
  }
  if (there == entries.end()) {
    disk_->rename(save.folder_, name);
  } else if (!disk_->exchange(save.folder_, name)) {
    const std::string old = save.old_name();
    disk_->rename(name, old);
    if (const auto failure = failure_of([&] { disk_->rename(save.folder_, name); })) {
      disk_->rename(old, name);
      throw Error("{}", *failure);
    }
  }
  committed = true;
  disk_->sync_folder("");
}

std::vector<std::string> Saver::tidy(const Save& save) const {
  std::vector<std::string> warnings;
  const auto attempt = [&](auto action) {
    if (const auto failure = failure_of(action)) warnings.push_back(*failure);
  };
  attempt([&] { write_latest(*disk_, step_name(save.step_)); });
  attempt([&] {
    // The one that was replaced, under whichever name.
    remove_tree(*disk_, save.folder_);
    if (holds(*disk_, "", save.old_name())) remove_checkpoints(*disk_, {save.old_name()});
  });
  attempt([&] { remove_old({save.step_}); });
  return warnings;
}

void Saver::remove_old(std::set<int64_t> steps) const {
  steps.insert(kept_steps_.begin(), kept_steps_.end());
  const Retention retention{.newest = options_.keep, .steps = std::move(steps)};
  remove_checkpoints(*disk_, to_be_removed(*disk_, retention));
}

void Saver::keep(int64_t newest, std::set<int64_t> steps) {
  options_.keep = newest;
  kept_steps_ = std::move(steps);
}

Save::Save(Saver& saver, int64_t step, const Attempt& attempt)
    : saver_(&saver), step_(step), attempt_(attempt), folder_(temporary_name(step, attempt)) {}

Save::Save(Save&& other) noexcept
    : saver_(std::exchange(other.saver_, nullptr)),
      step_(other.step_),
      attempt_(other.attempt_),
      folder_(std::move(other.folder_)),
      ends_(other.ends_) {}

Save::~Save() {
  if (saver_ == nullptr || !ends_ || !saver_->commits()) return;
  try {
    remove_tree(*saver_->disk_, folder_);
  } catch (...) {  // the next save clears it away
  }
}

std::filesystem::path Save::path() const {
  return saver_->disk_->path() / folder_;
}

Disk& Save::disk() const {
  return *saver_->disk_;
}

std::string Save::piece_file_name() const {
  return checkpoint::piece_file_name(saver_->ranks_.rank());
}

PieceFile Save::piece_file(std::vector<Piece> pieces) const {
  return PieceFile(*saver_->disk_, joined(folder_, piece_file_name()), std::move(pieces));
}

std::string Save::name_of(std::string_view what) const {
  return fmt::format("saving step {}: {}", step_, what);
}

std::string Save::old_name() const {
  return fmt::format("{}{}-{}", kOld, step_name(step_), checkpoint::text_of(attempt_));
}

uint32_t Save::write_manifest(const std::vector<std::string>& reports, Manifest facts,
                              const std::vector<WholeState>& expected) const {
  std::vector<Report> parsed;
  for (const std::string& report : reports) parsed.push_back(parse_report(report));
  facts.files = merged(parsed, expected);
  Disk& disk = *saver_->disk_;
  Tree tree;
  look_through(disk, folder_, "", tree);
  for (const StoredFile& file : facts.files) check_and_sync(disk, folder_, tree, file);
  for (const StoredFile& file : facts.files) tree.files.erase(file.name);
  for (const auto& [name, size] : tree.files) {
    facts.files.push_back(describe_file(disk, folder_, name));
  }
  std::sort(facts.files.begin(), facts.files.end(),
            [](const StoredFile& a, const StoredFile& b) { return a.name < b.name; });
  facts.step = step_;
  facts.run_id = saver_->options_.run_id;
  facts.attempt = checkpoint::text_of(attempt_);
  facts.written = std::time(nullptr);
  facts.parent = saver_->options_.parent;
  const std::string text = checkpoint::text_of(facts);
  write_text(disk, joined(folder_, std::string(kManifest)), text);
  for (const std::string& inner : tree.folders) disk.sync_folder(joined(folder_, inner));
  disk.sync_folder(folder_);
  return checkpoint::manifest_crc(text).value_or(0);
}

Committed Save::commit(const Contribution& mine, Manifest facts,
                       const std::vector<WholeState>& expected) {
  Ranks& ranks = saver_->ranks_;
  std::string report;
  const auto unreported = failure_of([&] {
    report =
        checkpoint::text_of(Report{step_, checkpoint::text_of(attempt_), facts.must_equal, mine});
  });
  const auto reports = vote(ranks, name_of("listing what was written"), unreported, report);
  Committed done{.name = step_name(step_)};
  stage("writing the manifest", [&] {
    if (saver_->commits()) done.crc = write_manifest(reports, std::move(facts), expected);
  });
  // All ranks are there, and all is on the disk: one rename is left.
  bool committed = false;
  const auto failure = failure_of([&] {
    if (!saver_->commits()) return;
    saver_->owner_->check();
    saver_->put_in_place(*this, committed);
  });
  if (committed) {
    ends_ = false;
    if (!failure) done.warnings = saver_->tidy(*this);
  }
  const auto answers = vote(ranks, name_of("committing"), failure, answer_of(done));
  done = parse_committed(done.name, answers.front());
  saver_->options_.parent = Parent{step_, done.crc};
  return done;
}

}  // namespace zeroth::checkpoint
