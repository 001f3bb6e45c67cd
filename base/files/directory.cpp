#include "base/files/directory.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/machine/process_limits.h"

namespace zeroth {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // same as the kernel's
constexpr int kOpenDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

struct stat file_status(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw Error("cannot stat an open file: {}", system_reason(errno));
  return status;
}

// A PathWalk resolves a path from the root, component by component.
class PathWalk {
 public:
  explicit PathWalk(const fs::path& path) : full_path_(path), path_("/") {
    if (path.empty()) throw Error("the path is empty: expected a file or folder");
    std::error_code failed;
    const fs::path absolute = fs::absolute(path, failed);
    if (failed) throw Error("the working folder: {}", system_reason(failed.value()));
    start_at_root();
    for (const fs::path& part : absolute) push(part);
  }

  bool done() const { return remaining_.empty(); }
  // Enters the next component. Returns false if it is missing, or if its parent is no directory.
  bool step() {
    const std::string part = remaining_.front();
    FileDescriptor next(::openat(at_.get(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (next.get() < 0) {
      if (errno == ENOENT || errno == ENOTDIR) return false;
      fail(errno);
    }
    remaining_.pop_front();
    const struct stat status = file_status(next.get());
    if (S_ISLNK(status.st_mode)) {
      follow(next.get(), path_ / part, status.st_uid);
    } else {
      at_ = std::move(next);
      path_ = part == ".." ? path_.parent_path() : path_ / part;
    }
    return true;
  }
  // Creates the next component as a directory. Returns false if another process created it
  // meanwhile.
  bool make() {
    if (::mkdirat(at_.get(), remaining_.front().c_str(), 0777) == 0) return true;
    if (errno != EEXIST) fail(errno);
    return false;
  }
  // Opens the current directory for reading; the walk itself uses O_PATH descriptors.
  FileDescriptor open() const { return FileDescriptor(::openat(at_.get(), ".", kOpenDirectory)); }
  const fs::path& path() const { return path_; }
  fs::path remaining_path() const {
    fs::path remaining_path;
    for (const std::string& part : remaining_) remaining_path /= part;
    return remaining_path;
  }
  [[noreturn]] void fail(int reason) const {
    throw Error("{}: {}", full_path_.string(), system_reason(reason));
  }

 private:
  void start_at_root() {
    at_ = FileDescriptor(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    path_ = "/";
  }

  void push(const fs::path& part) {
    if (!part.empty() && part != "/" && part != ".") remaining_.push_back(part.string());
  }

  void follow(int link, const fs::path& where, uid_t owner) {
    const uid_t of_folder = file_status(at_.get()).st_uid;
    if (owner != ::geteuid() && owner != 0 && owner != of_folder) {
      throw Error("{}: {} is a link of another user (uid {}) and is not followed",
                  full_path_.string(), where.string(), owner);
    }
    if (++links_ > kMaxLinks) fail(ELOOP);
    char text[PATH_MAX];
    const ssize_t length = ::readlinkat(link, "", text, sizeof(text));
    if (length < 0) fail(errno);
    const fs::path target(std::string(text, static_cast<size_t>(length)));
    if (target.is_absolute()) start_at_root();
    std::deque<std::string> later_parts = std::exchange(remaining_, {});
    for (const fs::path& part : target) push(part);
    remaining_.insert(remaining_.end(), later_parts.begin(), later_parts.end());
  }

  fs::path full_path_;
  FileDescriptor at_;
  fs::path path_;
  std::deque<std::string> remaining_;
  int links_ = 0;
};

}  // namespace

fs::path resolve_links(const fs::path& path) {
  PathWalk walk(path);
  while (!walk.done()) {
    if (!walk.step()) return (walk.path() / walk.remaining_path()).lexically_normal();
  }
  return walk.path();
}

Directory Directory::create(const fs::path& path) {
  PathWalk walk(path);
  int num_created = 0;
  while (!walk.done()) {
    if (!walk.step() && walk.make()) ++num_created;
  }
  FileDescriptor fd = walk.open();
  if (fd.get() < 0) walk.fail(errno);
  Directory directory(std::move(fd), walk.path());
  directory.num_created_ = num_created;
  return directory;
}

std::optional<Directory> Directory::find(const fs::path& path) {
  PathWalk walk(path);
  while (!walk.done()) {
    if (!walk.step()) return std::nullopt;
  }
  FileDescriptor fd = walk.open();
  if (fd.get() >= 0) return Directory(std::move(fd), walk.path());
  if (errno != ENOTDIR) walk.fail(errno);
  return std::nullopt;
}

uid_t Directory::owner() const {
  return file_status(get()).st_uid;
}

bool Directory::is_owned_by_this_user() const {
  return owner() == ::geteuid();
}

std::vector<std::string> Directory::names() const {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(proc_fd_path(get()), failed), end; !failed && entry != end;
       entry.increment(failed)) {
    names.push_back(entry->path().filename().string());
  }
  if (failed) throw Error("{}: {}", path_.string(), system_reason(failed.value()));
  return names;
}

std::optional<Directory> Directory::open_subdirectory(const std::string& name) const {
  FileDescriptor fd(::openat(get(), name.c_str(), kOpenDirectory));
  if (fd.get() < 0) return std::nullopt;
  return Directory(std::move(fd), path_ / name);
}

bool Directory::contains(const std::string& name) const {
  struct stat status {};
  return ::fstatat(get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

void Directory::clear() const {
  for (const std::string& name : names()) {
    std::error_code failed;
    fs::remove_all(proc_fd_path(get()) / name, failed);
    if (failed) throw Error("{}: {}", (path_ / name).string(), system_reason(failed.value()));
  }
}

void Directory::remove(const std::string& name, const Directory& directory) const {
  directory.clear();
  if (::unlinkat(get(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    throw Error("{}: {}", directory.path().string(), system_reason(errno));
  }
}

}  // namespace zeroth
