#include "checkpoint/commit.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "base/text/units.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kChunk = int64_t{4} << 20;
constexpr int64_t kMargin = int64_t{4} << 20;  // manifest, directories, partially filled blocks

// A FileTree lists the files below a directory, relative to it, with their sizes, and the
// directories, the innermost first.
struct FileTree {
  std::map<std::string, int64_t> files;
  std::vector<std::string> directories;
};

FileTree list_files(FileSystem& file_system, const std::string& root) {
  FileTree tree;
  for (const DirectoryEntry& entry :
       list_tree(file_system, root, std::numeric_limits<size_t>::max())) {
    if (entry.kind == DirectoryEntry::Kind::kFile) {
      tree.files[entry.name] = entry.size;
    } else if (entry.kind == DirectoryEntry::Kind::kDirectory) {
      tree.directories.push_back(entry.name);
    } else {
      throw Error("{} is not a regular file",
                  full_path(file_system, join_path(root, entry.name)).string());
    }
  }
  return tree;
}

// Checks that the file exists as the ranks report it, and makes it durable. A chunk file was
// already synced by its writer; other files are synced here.
void check_and_sync(FileSystem& file_system, const std::string& directory, const FileTree& tree,
                    const StoredFile& file) {
  const auto there = tree.files.find(file.name);
  const std::string path = full_path(file_system, join_path(directory, file.name)).string();
  if (there == tree.files.end()) throw Error("{} is missing, though a rank wrote it", path);
  if (there->second != file.size) {
    throw Error("{} has {} bytes, ranks have written {}", path, there->second, file.size);
  }
  if (file.chunks.empty()) file_system.sync_file(join_path(directory, file.name));
}

// Writes `latest`. It is only a hint, so a save need not wait until it is on disk.
void write_latest(FileSystem& file_system, const std::string& name) {
  const std::string fresh = std::string(kTemporary) + std::string(kLatest);
  remove_tree(file_system, fresh);
  const std::string text = name + "\n";
  const auto file = file_system.create(fresh, std::ssize(text));
  write_all(*file, std::as_bytes(std::span(text)), 0);
  file->close();
  file_system.rename(fresh, std::string(kLatest));
}

// Serializes rank 0's commit for the other ranks.
std::string to_json_text(const CommitResult& done) {
  return to_line(nlohmann::json{{"crc", done.crc}, {"warnings", done.warnings}});
}

CommitResult parse_committed(std::string name, const std::string& text) {
  const nlohmann::json tree = parse_json(text, {.name = "rank 0's commit"});
  const JsonView view(tree);
  return {.name = std::move(name),
          .crc = static_cast<uint32_t>(view.at("crc").integer(0, UINT32_MAX)),
          .warnings = view.at("warnings").texts()};
}

// Reads a file of a checkpoint, syncs it and returns its description. `name` is relative to
// `directory`.
StoredFile describe_file(FileSystem& file_system, const std::string& directory,
                         const std::string& name) {
  const std::string whole = join_path(directory, name);
  file_system.sync_file(whole);
  const auto file = file_system.open(whole);
  StoredFile stored{.name = name, .size = file->size()};
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kChunk, stored.size)));
  stored.crc = read_crc(*file, 0, stored.size, buffer, full_path(file_system, whole));
  return stored;
}

}  // namespace

Saver::Saver(std::shared_ptr<FileSystem> file_system, RankGroup& ranks, SaverOptions options)
    : file_system_(std::move(file_system)), ranks_(ranks), options_(std::move(options)) {
  const auto failure = capture_failure([&] {
    if (!is_committer()) return;
    owner_ = Owner::claim(file_system_, options_.description);
    cleanup_leftovers(*file_system_);
  });
  const std::string generation = owner_ ? fmt::format("{}", owner_->generation()) : "";
  const auto answers =
      commit_vote(ranks_, fmt::format("claiming {} for checkpoints", file_system_->path().string()),
                  failure, generation);
  generation_ = parse_number<int64_t>(answers.front()).value_or(0);
}

Save Saver::begin(int64_t step, int64_t bytes) {
  Save save(*this, step, {generation_, ++attempts_});
  const auto answers =
      commit_vote(ranks_, save.phase_name("preparing"), std::nullopt, fmt::format("{}", bytes));
  save.run_phase("preparing", [&] {
    if (!is_committer()) return;
    int64_t all = kMargin;
    for (const std::string& answer : answers) all += parse_number<int64_t>(answer).value_or(0);
    owner_->check();
    cleanup_leftovers(*file_system_);
    const int64_t free = file_system_->free_bytes();
    if (free < all) {
      throw Error("{}: a checkpoint takes {} and {} are free there", file_system_->path().string(),
                  format_bytes(all), format_bytes(free));
    }
    file_system_->create_directory(save.directory_);
    file_system_->create_directory(join_path(save.directory_, std::string(kChunkDirectory)));
  });
  return save;
}

void Saver::publish(const Save& save, bool& committed) const {
  const std::string name = step_name(save.step_);
  const auto there = find_entry(*file_system_, "", name);
  if (there && there->kind != DirectoryEntry::Kind::kDirectory) {
    throw Error("{} is in the way: it is not a folder", full_path(*file_system_, name).string());
  }
  if (!there) {
    file_system_->rename(save.directory_, name);
  } else if (!file_system_->exchange(save.directory_, name)) {
    const std::string old = save.old_name();
    file_system_->rename(name, old);
    if (const auto failure =
            capture_failure([&] { file_system_->rename(save.directory_, name); })) {
      file_system_->rename(old, name);
      throw Error("{}", *failure);
    }
  }
  committed = true;
  file_system_->sync_directory("");
}

std::vector<std::string> Saver::finish_commit(const Save& save) const {
  std::vector<std::string> warnings;
  const auto attempt = [&](auto action) {
    if (const auto failure = capture_failure(action)) warnings.push_back(*failure);
  };
  attempt([&] { write_latest(*file_system_, step_name(save.step_)); });
  attempt([&] {
    // Remove the replaced checkpoint, under whichever name it has.
    remove_tree(*file_system_, save.directory_);
    if (exists(*file_system_, "", save.old_name()))
      remove_checkpoints(*file_system_, {save.old_name()});
  });
  attempt([&] { rotate_checkpoints({save.step_}); });
  return warnings;
}

void Saver::rotate_checkpoints(std::set<int64_t> steps) const {
  steps.insert(kept_steps_.begin(), kept_steps_.end());
  const RetentionPolicy retention{.newest = options_.keep, .steps = std::move(steps)};
  remove_checkpoints(*file_system_, expired_checkpoints(*file_system_, retention));
}

void Saver::keep(int64_t newest, std::set<int64_t> steps) {
  options_.keep = newest;
  kept_steps_ = std::move(steps);
}

Save::Save(Saver& saver, int64_t step, const SaveAttempt& attempt)
    : saver_(&saver), step_(step), attempt_(attempt), directory_(temporary_name(step, attempt)) {}

Save::Save(Save&& other) noexcept
    : saver_(std::exchange(other.saver_, nullptr)),
      step_(other.step_),
      attempt_(other.attempt_),
      directory_(std::move(other.directory_)),
      removes_on_exit_(other.removes_on_exit_) {}

Save::~Save() {
  if (saver_ == nullptr || !removes_on_exit_ || !saver_->is_committer()) return;
  try {
    remove_tree(*saver_->file_system_, directory_);
  } catch (...) {  // the next save removes it
  }
}

std::filesystem::path Save::path() const {
  return saver_->file_system_->path() / directory_;
}

FileSystem& Save::file_system() const {
  return *saver_->file_system_;
}

std::string Save::chunk_file_name() const {
  return checkpoint::chunk_file_name(saver_->ranks_.rank());
}

ChunkFile Save::chunk_file(std::vector<TensorChunk> chunks) const {
  return ChunkFile(*saver_->file_system_, join_path(directory_, chunk_file_name()),
                   std::move(chunks));
}

std::string Save::phase_name(std::string_view what) const {
  return fmt::format("saving step {}: {}", step_, what);
}

std::string Save::old_name() const {
  return fmt::format("{}{}-{}", kOld, step_name(step_), checkpoint::to_string(attempt_));
}

uint32_t Save::write_manifest(const std::vector<std::string>& reports, Manifest manifest,
                              const std::vector<StoredState>& expected) const {
  std::vector<RankReport> parsed;
  for (const std::string& report : reports) parsed.push_back(parse_report(report));
  manifest.files = merge_reports(parsed, expected);
  FileSystem& file_system = *saver_->file_system_;
  FileTree tree = list_files(file_system, directory_);
  for (const StoredFile& file : manifest.files) check_and_sync(file_system, directory_, tree, file);
  for (const StoredFile& file : manifest.files) tree.files.erase(file.name);
  for (const auto& [name, size] : tree.files) {
    manifest.files.push_back(describe_file(file_system, directory_, name));
  }
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const StoredFile& a, const StoredFile& b) { return a.name < b.name; });
  manifest.step = step_;
  manifest.run_id = saver_->options_.run_id;
  manifest.attempt = checkpoint::to_string(attempt_);
  manifest.written = std::time(nullptr);
  manifest.parent = saver_->options_.parent;
  const std::string text = checkpoint::to_string(manifest);
  write_text(file_system, join_path(directory_, std::string(kManifest)), text);
  for (const std::string& inner : tree.directories)
    file_system.sync_directory(join_path(directory_, inner));
  file_system.sync_directory(directory_);
  return checkpoint::manifest_crc(text).value_or(0);
}

CommitResult Save::commit(const RankManifest& mine, Manifest manifest,
                          const std::vector<StoredState>& expected) {
  RankGroup& ranks = saver_->ranks_;
  std::string report;
  const auto report_error = capture_failure([&] {
    report = checkpoint::to_string(RankReport{{.step = step_,
                                               .attempt = checkpoint::to_string(attempt_),
                                               .must_equal = manifest.must_equal,
                                               .files = mine.files},
                                              mine.parts});
  });
  const auto reports =
      commit_vote(ranks, phase_name("listing what was written"), report_error, report);
  CommitResult done{.name = step_name(step_)};
  run_phase("writing the manifest", [&] {
    if (saver_->is_committer()) done.crc = write_manifest(reports, std::move(manifest), expected);
  });
  // All ranks have voted and all files are on disk; one rename remains.
  bool committed = false;
  const auto failure = capture_failure([&] {
    if (!saver_->is_committer()) return;
    saver_->owner_->check();
    saver_->publish(*this, committed);
  });
  if (committed) {
    removes_on_exit_ = false;
    if (!failure) done.warnings = saver_->finish_commit(*this);
  }
  const auto answers = commit_vote(ranks, phase_name("committing"), failure, to_json_text(done));
  done = parse_committed(done.name, answers.front());
  saver_->options_.parent = Parent{step_, done.crc};
  return done;
}

}  // namespace zeroth::checkpoint
