#include "model/temporary_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "model/model_files.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;

// No user's folder has such a name. The first is written or, after an exchange, the old one; the
// second is the old one where there is no exchange; the third goes away.
constexpr std::string_view kTemporary = ".zeroth-tmp-";
constexpr std::string_view kOld = ".zeroth-old-";
constexpr std::string_view kRemoved = ".zeroth-del-";
constexpr std::string_view kKept = ".new-";
constexpr size_t kRandom = 6;  // characters that mkdtemp chooses

fs::path make_sibling(const fs::path& target, std::string_view mark) {
  std::error_code failed;
  fs::create_directories(target.parent_path(), failed);
  std::string name = target.string() + std::string(mark) + std::string(kRandom, 'X');
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

// A descriptor that holds the folder's lock, or -1: somebody else holds it, or there are none here.
int lock(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

// NFS and others lack the exchange.
bool lacks_exchange(int reason) {
  return reason == EINVAL || reason == ENOSYS || reason == ENOTSUP || reason == EXDEV;
}

// The name of the target, where `name` is one with `mark`; empty otherwise.
std::string target_of(const std::string& name, std::string_view mark) {
  if (name.size() <= mark.size() + kRandom) return "";
  const size_t at = name.size() - kRandom - mark.size();
  const bool random = std::all_of(name.end() - kRandom, name.end(),
                                  [](unsigned char c) { return std::isalnum(c) != 0; });
  return random && name.compare(at, mark.size(), mark) == 0 ? name.substr(0, at) : "";
}

bool only_model_files(const fs::path& folder) {
  return std::all_of(
      fs::directory_iterator(folder), fs::directory_iterator(),
      [](const auto& entry) { return is_model_file(entry.path().filename().string()); });
}

struct Leftover {
  fs::path path;
  fs::path target;
  std::string_view mark;
};

void clear(const Leftover& left) {
  const int held = lock(left.path);
  if (held < 0) return;
  if (left.mark != kRemoved && fs::is_directory(left.target)) {
    bring_home(left.path, left.target);
  } else if (left.mark == kOld) {
    move_to(left.path, left.target);
  }
  // Without its target, what is not a model's in it is the user's.
  const bool ours = left.mark == kRemoved || fs::is_directory(left.target);
  if (fs::exists(left.path) && (ours || only_model_files(left.path))) fs::remove_all(left.path);
  ::close(held);
}

}  // namespace

TemporaryFolder::TemporaryFolder(const fs::path& target)
    : target_(target), path_(make_sibling(target, kTemporary)), lock_(lock(path_)) {
  ::chmod(path_.c_str(), 0755);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!kept_) fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

fs::path TemporaryFolder::set_aside() {
  keep();
  const std::string random = path_.string().substr(path_.string().size() - kRandom);
  const fs::path aside = target_.string() + std::string(kKept) + random;
  if (::rename(path_.c_str(), aside.c_str()) == 0) path_ = aside;
  return path_;
}

std::string free_text(const fs::path& folder) {
  std::error_code unknown;
  const fs::space_info space = fs::space(folder, unknown);
  return unknown ? "" : fmt::format("; {} bytes are free there", space.available);
}

fs::path exchange(const fs::path& fresh, const fs::path& target) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    return fresh;
  }
  if (!lacks_exchange(errno)) {
    throw Error("{} cannot take the place of {}: {}", fresh.string(), target.string(),
                std::strerror(errno));
  }
  const fs::path old = make_sibling(target, kOld);
  move_to(target, old);
  try {
    move_to(fresh, target);
  } catch (const Error&) {
    move_to(old, target);
    throw;
  }
  return old;
}

void bring_home(const fs::path& old, const fs::path& target) {
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(old)) names.push_back(entry.path().filename());
  for (const fs::path& name : names) {
    if (!is_model_file(name.string()) && !fs::exists(target / name)) {
      move_to(old / name, target / name);
    }
  }
}

void remove_folder(const fs::path& folder) {
  const fs::path gone = make_sibling(folder, kRemoved);
  move_to(folder, gone);
  naming_errors([&] { fs::remove_all(gone); });
}

void clear_leftovers(const fs::path& folder,
                     const std::function<bool(const std::string& name)>& ours) {
  naming_errors([&] {
    if (!fs::is_directory(folder)) return;
    std::vector<Leftover> found;
    for (const auto& entry : fs::directory_iterator(folder)) {
      for (const std::string_view mark : {kTemporary, kOld, kRemoved}) {
        const std::string name = target_of(entry.path().filename().string(), mark);
        if (!name.empty() && ours(name)) found.push_back({entry.path(), folder / name, mark});
      }
    }
    for (const Leftover& left : found) clear(left);
  });
}

}  // namespace zeroth::model
