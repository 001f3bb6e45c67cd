#include "model/output_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "base/error.h"
#include "model/model_files.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;

// What the standard library throws becomes an Error that names the path.
template <typename Action>
auto naming_errors(Action action) {
  try {
    return action();
  } catch (const fs::filesystem_error& error) {
    throw Error("{}: {}", error.path1().string(), error.code().message());
  }
}

// Absolute, without a trailing slash, and through a link to the folder itself.
fs::path clean(const fs::path& target) {
  fs::path path = fs::weakly_canonical(fs::absolute(target)).lexically_normal();
  return path.filename().empty() ? path.parent_path() : path;
}

bool is_mount_point(const fs::path& path) {
  struct statx facts {};
  return ::statx(AT_FDCWD, path.c_str(), 0, STATX_BASIC_STATS, &facts) == 0 &&
         (facts.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

void check_existing(const fs::path& target, bool overwrite) {
  if (!fs::is_directory(target)) throw Error("{} is not a folder", target.string());
  if (!overwrite && !fs::is_empty(target)) {
    throw Error(
        "{} is not empty: choose another folder, or overwrite (--overwrite) to replace the model "
        "in it",
        target.string());
  }
  if (is_mount_point(target)) {
    throw Error("{} is where a disk is mounted and cannot be replaced: choose a folder in it",
                target.string());
  }
}

// Makes a folder where the first missing part of `path` will be made, and removes it. `path` is
// clean; `target` is how the user wrote it.
void check_place(const fs::path& path, const fs::path& target) {
  fs::path place = path.parent_path();
  while (!fs::exists(place)) place = place.parent_path();
  if (!fs::is_directory(place)) {
    throw Error("{} cannot be made: {} is not a folder", target.string(), place.string());
  }
  std::string probe = (place / path.filename()).string() + ".tmp-XXXXXX";
  if (::mkdtemp(probe.data()) == nullptr) {
    throw Error("{} cannot be made: no folder can be made in {}: {}", target.string(),
                place.string(), std::strerror(errno));
  }
  ::rmdir(probe.c_str());
}

// Beside `target`, so that a rename stays within one file system.
fs::path make_sibling(const fs::path& target, const char* mark) {
  std::error_code failed;
  fs::create_directories(target.parent_path(), failed);
  std::string name = target.string() + mark + "XXXXXX";
  if (failed || ::mkdtemp(name.data()) == nullptr) {
    throw Error("no folder can be made beside {}: {}", target.string(),
                failed ? failed.message() : std::strerror(errno));
  }
  return name;
}

void move_to(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw Error("{} cannot be renamed to {}: {}", from.string(), to.string(), std::strerror(errno));
  }
}

void sync(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool done = fd >= 0 && ::fsync(fd) == 0;
  const int reason = errno;
  if (fd >= 0) ::close(fd);
  if (!done) throw Error("{} cannot be written: {}", path.string(), std::strerror(reason));
}

bool holds_model(const fs::path& folder) {
  return std::any_of(
      fs::directory_iterator(folder), fs::directory_iterator(),
      [](const auto& entry) { return is_model_file(entry.path().filename().string()); });
}

}  // namespace

void OutputFolder::check(const fs::path& target, bool overwrite) {
  naming_errors([&] {
    if (fs::exists(target)) {
      check_existing(target, overwrite);
    } else if (fs::is_symlink(target)) {
      throw Error("{} is a link to nothing", target.string());
    }
    check_place(clean(target), target);
  });
}

OutputFolder::OutputFolder(const fs::path& target, bool overwrite)
    : target_(naming_errors([&] { return clean(target); })), overwrite_(overwrite) {
  check(target_, overwrite);
  temporary_ = make_sibling(target_, ".tmp-");
  ::chmod(temporary_.c_str(), 0755);
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!keep_) fs::remove_all(temporary_, ignored);
}

void OutputFolder::keep_foreign_files(const fs::path& old) const {
  for (const auto& entry : fs::directory_iterator(old)) {
    const fs::path name = entry.path().filename();
    if (!is_model_file(name.string()) && !fs::exists(target_ / name)) {
      move_to(entry.path(), target_ / name);
    }
  }
}

void OutputFolder::put_in_place() {
  if (!fs::exists(target_) || fs::is_empty(target_)) {
    move_to(temporary_, target_);  // also onto an empty folder
    return;
  }
  if (!overwrite_ && holds_model(target_)) {
    throw Error("{} holds another model by now", target_.string());
  }
  const fs::path old = make_sibling(target_, ".old-");
  move_to(target_, old);
  move_to(temporary_, target_);
  keep_foreign_files(old);
  fs::remove_all(old);
}

void OutputFolder::commit() {
  naming_errors([&] {
    for (const auto& entry : fs::recursive_directory_iterator(temporary_)) sync(entry.path());
    sync(temporary_);
  });
  keep_ = true;
  try {
    naming_errors([&] { put_in_place(); });
  } catch (const Error& error) {
    if (!fs::exists(temporary_)) throw;
    throw Error("{}: the new model is complete and stays in {}", error.what(), temporary_.string());
  }
  sync(target_.parent_path());
}

}  // namespace zeroth::model
