#include "model/hf/output_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/process_limits.h"
#include "model/hf/model_directory.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;

// What a run writes before its model, by replace_file(), of which a killed run leaves NAME.part.
constexpr std::array kReports = {"train_log.html", "trace.json"};

bool is_mount_point(const fs::path& path) {
  struct statx facts {};
  return ::statx(AT_FDCWD, path.c_str(), 0, STATX_BASIC_STATS, &facts) == 0 &&
         (facts.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

// Returns whether a new run may use the directory: the reports of a run that was stopped are no
// reason to refuse it.
bool is_reusable(const fs::path& directory) {
  return std::ranges::all_of(fs::directory_iterator(directory), [](const auto& entry) {
    fs::path name = entry.path().filename();
    if (name.extension() == ".part") name.replace_extension();
    return std::ranges::find(kReports, name) != kReports.end();
  });
}

// Throws an Error for a target of another user in a directory like /tmp, where that user could
// replace files of this one.
void check_owner(const fs::path& target) {
  struct stat target_stat {};
  struct stat around {};
  if (::stat(target.c_str(), &target_stat) != 0 ||
      ::stat(target.parent_path().c_str(), &around) != 0)
    return;
  const bool trusted = target_stat.st_uid == ::geteuid() || target_stat.st_uid == 0 ||
                       target_stat.st_uid == around.st_uid;
  if (trusted || (around.st_mode & S_IWOTH) == 0) return;
  throw Error(
      "{} belongs to another user (uid {}), in a world-writable folder: choose another place",
      target.string(), target_stat.st_uid);
}

void check_existing(const fs::path& target, bool overwrite) {
  if (!fs::is_directory(target)) throw Error("{} is not a folder", target.string());
  if (!overwrite && !is_reusable(target)) {
    throw Error(
        "{} is not empty: choose another folder, or overwrite (--overwrite) to replace the model "
        "in it{}",
        target.string(),
        fs::is_directory(target / "checkpoints") ? "; --resume continues from its checkpoints"
                                                 : "");
  }
  if (is_mount_point(target)) {
    throw Error("{} is a mount point and cannot be replaced: choose a folder in it",
                target.string());
  }
}

// Creates a directory where the first missing part of `path` will be created, and removes it.
// `path` is normalized; `target` is how the user wrote it.
void check_can_be_made(const fs::path& path, const fs::path& target) {
  fs::path nearest = path.parent_path();
  while (!fs::exists(nearest)) nearest = nearest.parent_path();
  if (!fs::is_directory(nearest)) {
    throw Error("{} cannot be created: {} is not a folder", target.string(), nearest.string());
  }
  std::string probe = (nearest / path.filename()).string() + ".zeroth-tmp-XXXXXX";
  if (::mkdtemp(probe.data()) == nullptr) {
    const int reason = errno;
    const bool there = fs::is_directory(path);
    throw Error("{} cannot be {}: cannot create a folder in {}: {}{}", target.string(),
                there ? "replaced" : "created", nearest.string(), system_reason(reason),
                there ? "; choose a folder in it" : "");
  }
  ::rmdir(probe.c_str());
}

void sync(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 || ::fsync(file.get()) != 0) throw_write_error(path);
}

bool holds_model(const fs::path& directory) {
  return std::ranges::any_of(fs::directory_iterator(directory), [](const auto& entry) {
    return is_model_file(entry.path().filename().string());
  });
}

}  // namespace

void OutputDirectory::check(const fs::path& target, bool overwrite) {
  with_path_errors([&] {
    const fs::path path = resolve_links(target);
    if (fs::exists(path)) {
      check_owner(path);
      check_existing(target, overwrite);
    } else if (fs::is_symlink(target)) {
      throw Error("{} is a broken link", target.string());
    }
    check_can_be_made(path, target);
  });
}

void OutputDirectory::cleanup_leftovers(const fs::path& target) {
  const fs::path target_path = resolve_links(target);
  const std::string target_name = target_path.filename().string();
  model::cleanup_leftovers(target_path.parent_path(),
                           [&](const auto& name) { return name == target_name; });
}

OutputDirectory::OutputDirectory(const fs::path& target, bool overwrite)
    : target_(resolve_links(target)), overwrite_(overwrite) {
  with_path_errors([&] { check_can_be_made(target_, target_); });
  temporary_.emplace(target_);
}

std::unique_ptr<PreviousModel> OutputDirectory::install() {
  const fs::path& fresh = temporary_->path();
  if (fs::is_symlink(target_)) throw Error("{} is a link now", target_.string());
  if (!fs::exists(target_) || fs::is_empty(target_)) {
    move_to(fresh, target_);  // also onto an empty directory
    installed_ = true;
    return nullptr;
  }
  if (!overwrite_ && holds_model(target_)) {
    throw Error("{} holds another model now", target_.string());
  }
  const fs::path old = exchange(fresh, target_);
  installed_ = true;
  move_user_files(old, target_);  // before anything of it may be removed
  auto previous = std::make_unique<PreviousModel>(old, target_);
  return holds_model(old) ? std::move(previous) : nullptr;
}

std::unique_ptr<PreviousModel> OutputDirectory::commit(const OutputGuard& guard) {
  with_path_errors([&] {
    for (const auto& entry : fs::recursive_directory_iterator(path())) sync(entry.path());
    sync(path());
  });
  if (guard) guard();
  temporary_->keep();
  std::unique_ptr<PreviousModel> previous;
  try {
    with_path_errors([&] { previous = install(); });
  } catch (const Error& error) {
    if (installed_) throw;
    throw Error("{}: the new model is complete and stays in {}", error.what(),
                temporary_->move_aside().string());
  }
  sync(target_);
  sync(target_.parent_path());
  return previous;
}

PreviousModel::~PreviousModel() {
  std::error_code ignored;  // cleanup_leftovers() removes what stays
  if (!kept_) fs::remove_all(directory_, ignored);
}

fs::path PreviousModel::restore() {
  kept_ = true;
  fs::path other = directory_;
  try {
    other = exchange(directory_, target_);
    move_user_files(other, target_);
  } catch (const Error& error) {
    throw Error("{}: the other model is in {}", error.what(), move_aside(other, target_).string());
  }
  return move_aside(other, target_);
}

}  // namespace zeroth::model
