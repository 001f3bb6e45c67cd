#include "model/output_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "base/error.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;

// Absolute, without a trailing slash, and through a link to the folder itself.
fs::path clean(const fs::path& target) {
  fs::path path = fs::weakly_canonical(fs::absolute(target)).lexically_normal();
  return path.filename().empty() ? path.parent_path() : path;
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

bool is_weights(const fs::path& path) {
  const std::string name = path.filename().string();
  return path.extension() == ".safetensors" || name.ends_with(".safetensors.index.json");
}

bool holds_model(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() == "config.json" || is_weights(entry.path())) return true;
  }
  return false;
}

}  // namespace

void OutputFolder::check(const fs::path& target, bool overwrite) {
  if (!fs::exists(target)) return;
  if (!fs::is_directory(target)) throw Error("{} is not a folder", target.string());
  if (overwrite || fs::is_empty(target)) return;
  throw Error(
      "{} is not empty: choose another folder, or overwrite (--overwrite) to replace the model in "
      "it",
      target.string());
}

OutputFolder::OutputFolder(const fs::path& target, bool overwrite)
    : target_(clean(target)), overwrite_(overwrite) {
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
    const fs::path here = target_ / entry.path().filename();
    if (!is_weights(entry.path()) && !fs::exists(here)) move_to(entry.path(), here);
  }
}

void OutputFolder::commit() {
  for (const auto& entry : fs::recursive_directory_iterator(temporary_)) sync(entry.path());
  sync(temporary_);
  if (!fs::exists(target_) || fs::is_empty(target_)) {
    move_to(temporary_, target_);  // also onto an empty folder
  } else {
    if (!overwrite_ && holds_model(target_)) {
      keep_ = true;
      throw Error("{} holds another model by now: the new one stays in {}", target_.string(),
                  temporary_.string());
    }
    const fs::path old = make_sibling(target_, ".old-");
    move_to(target_, old);
    move_to(temporary_, target_);
    keep_foreign_files(old);
    fs::remove_all(old);
  }
  keep_ = true;
  sync(target_.parent_path());
}

}  // namespace zeroth::model
