#include "model/hf/temporary_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/machine/process_limits.h"
#include "model/hf/model_directory.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;

// Marks in names of directories, which no user's directory has. kTemporary marks the directory
// being written or, after an exchange, the old one; kOld the old one if exchange is not supported;
// kRemoved one that is being removed.
constexpr std::string_view kTemporary = ".zeroth-tmp-";
constexpr std::string_view kOld = ".zeroth-old-";
constexpr std::string_view kRemoved = ".zeroth-del-";
constexpr std::string_view kKept = ".new-";
constexpr size_t kRandom = 6;  // characters that mkdtemp chooses

fs::path make_sibling(const fs::path& target, std::string_view mark) {
  Directory::create(target.parent_path());
  std::string name = target.string() + std::string(mark) + std::string(kRandom, 'X');
  if (::mkdtemp(name.data()) == nullptr) {
    throw_write_error(fmt::format("cannot create a folder next to {}", target.string()), errno,
                      target.parent_path());
  }
  return name;
}

// Returns a descriptor that holds the directory's lock, if the lock is available.
FileDescriptor lock(const fs::path& directory) {
  FileDescriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() >= 0) ::flock(fd.get(), LOCK_EX | LOCK_NB);
  return fd;
}

// Returns whether the error means that the file system, such as NFS, does not support the exchange.
bool is_exchange_unsupported(int reason) {
  return reason == EINVAL || reason == ENOSYS || reason == ENOTSUP || reason == EXDEV;
}

// Returns the name of the target if `name` is one with `mark`; empty otherwise.
std::string leftover_target(const std::string& name, std::string_view mark) {
  if (name.size() <= mark.size() + kRandom) return "";
  const size_t at = name.size() - kRandom - mark.size();
  const bool random = std::all_of(name.end() - kRandom, name.end(),
                                  [](unsigned char c) { return std::isalnum(c) != 0; });
  return random && name.compare(at, mark.size(), mark) == 0 ? name.substr(0, at) : "";
}

// Moves an entry without replacing one that appeared meanwhile, if the file system can prevent it.
int move_within(const Directory& from, const std::string& name, const Directory& to,
                const std::string& new_name) {
  const auto move = [&](unsigned flags) {
    return ::renameat2(from.get(), name.c_str(), to.get(), new_name.c_str(), flags);
  };
  if (move(RENAME_NOREPLACE) == 0) return 0;
  return is_exchange_unsupported(errno) && !to.contains(new_name) ? move(0) : -1;
}

void move_user_files(const Directory& old, const Directory& target) {
  for (const std::string& name : old.names()) {
    if (is_model_file(name) || target.contains(name)) continue;
    if (move_within(old, name, target, name) != 0) {
      throw Error("{} cannot be moved to {}: {}", (old.path() / name).string(),
                  target.path().string(), system_reason(errno));
    }
  }
}

// Clears the leftover `name` of `target_name`, which has this mark.
void clear(const Directory& parent, const std::string& name, const std::string& target_name,
           std::string_view mark) {
  const auto directory = parent.open_subdirectory(name);
  if (!directory || !directory->is_owned_by_this_user()) return;
  if (::flock(directory->get(), LOCK_EX | LOCK_NB) != 0) return;  // a process is writing it
  auto target = parent.open_subdirectory(target_name);
  if (target && !target->is_owned_by_this_user() && target->owner() != parent.owner())
    target.reset();
  if (mark == kOld && !target) {
    if (parent.contains(target_name)) return;
    if (move_within(parent, name, parent, target_name) == 0) return;
    throw Error("{} cannot be renamed to {}: {}", directory->path().string(), target_name,
                system_reason(errno));
  }
  if (mark != kRemoved && target) move_user_files(*directory, *target);
  // Without its target, files in it that belong to no model are the user's.
  const bool is_ours_to_remove = mark == kRemoved || target;
  if (is_ours_to_remove || std::ranges::all_of(directory->names(), is_model_file))
    parent.remove(name, *directory);
}

// Gives `directory`, which mkdtemp created for this user alone, the group and the mode of the
// directory that it will replace, or those of a new directory.
void copy_permissions(const fs::path& directory, const fs::path& target) {
  struct stat target_stat {};
  const fs::path probe = directory / "mode";
  if (::stat(target.c_str(), &target_stat) == 0) {
    // If it cannot have the group, it must not be open to another.
    if (::chown(directory.c_str(), static_cast<uid_t>(-1), target_stat.st_gid) != 0)
      target_stat.st_mode &= static_cast<mode_t>(~(S_IRWXG | S_ISGID));
  } else if (::mkdir(probe.c_str(), 0777) != 0 || ::stat(probe.c_str(), &target_stat) != 0 ||
             ::rmdir(probe.c_str()) != 0) {
    return;
  }
  ::chmod(directory.c_str(), target_stat.st_mode & 07777);
}

}  // namespace

TemporaryDirectory::TemporaryDirectory(const fs::path& target)
    : target_(target), path_(make_sibling(target, kTemporary)), lock_(lock(path_)) {
  copy_permissions(path_, target);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!kept_) fs::remove_all(path_, ignored);
}

fs::path TemporaryDirectory::move_aside() {
  keep();
  return path_ = model::move_aside(path_, target_);
}

fs::path move_aside(const fs::path& directory, const fs::path& target) {
  const std::string random = directory.string().substr(directory.string().size() - kRandom);
  const fs::path aside = target.string() + std::string(kKept) + random;
  return ::rename(directory.c_str(), aside.c_str()) == 0 ? aside : directory;
}

void throw_write_error(const std::string& what, int error, const fs::path& directory) {
  std::string text = fmt::format("{}: {}", what, system_reason(error));
  std::error_code unknown;
  const fs::space_info space = fs::space(directory, unknown);
  if (!unknown && error != EFBIG) text += fmt::format("; {} bytes are free there", space.available);
  if (error == ENOSPC || error == EDQUOT) throw OutOfSpace("{}", text);
  throw Error("{}", text);
}

void throw_write_error(const fs::path& file, std::string_view what) {
  const int reason = errno;
  throw_write_error(fmt::format("{}{}", file.string(), what), reason, file.parent_path());
}

void write_file(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw_write_error(path);
}

void move_to(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw Error("{} cannot be renamed to {}: {}", from.string(), to.string(), system_reason(errno));
  }
}

fs::path exchange(const fs::path& fresh, const fs::path& target) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    return fresh;
  }
  if (!is_exchange_unsupported(errno)) {
    throw Error("{} cannot replace {}: {}", fresh.string(), target.string(), system_reason(errno));
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

void move_user_files(const fs::path& old, const fs::path& target) {
  const auto from = Directory::create(old.parent_path()).open_subdirectory(old.filename());
  const auto to = Directory::create(target.parent_path()).open_subdirectory(target.filename());
  if (!from || !to) throw Error("{} is no longer a folder", (from ? target : old).string());
  move_user_files(*from, *to);
}

void remove_directory(const fs::path& directory) {
  const fs::path gone = make_sibling(directory, kRemoved);
  try {
    move_to(directory, gone);
  } catch (const Error&) {
    ::rmdir(gone.c_str());
    throw;
  }
  with_path_errors([&] { fs::remove_all(gone); });
}

void cleanup_leftovers(const fs::path& directory,
                       const std::function<bool(const std::string& name)>& is_ours_to_remove) {
  const auto parent = Directory::find(directory);
  if (!parent) return;
  for (const std::string& name : parent->names()) {
    for (const std::string_view mark : {kTemporary, kOld, kRemoved}) {
      const std::string target = leftover_target(name, mark);
      if (!target.empty() && is_ours_to_remove(target)) clear(*parent, name, target, mark);
    }
  }
}

}  // namespace zeroth::model
