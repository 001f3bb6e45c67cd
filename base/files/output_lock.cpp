#include "base/files/output_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <optional>
#include <sstream>
#include <thread>

#include "base/machine/file_descriptor.h"
#include "base/machine/machine_id.h"
#include "base/machine/process_limits.h"

namespace zeroth {
namespace {

namespace fs = std::filesystem;

constexpr int kOpenFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;  // no link, no blocking on a FIFO

std::string lock_file_name(const fs::path& target) {
  return target.filename().string() + ".zeroth-lock";
}

struct flock whole_file_lock(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool is_locked(int file) {
  struct flock lock = whole_file_lock(F_RDLCK);
  return ::fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::string describe_self(const OutputAttempt& mine) {
  const std::string round = mine.run.empty() ? "" : fmt::format(" {} {}", mine.run, mine.index);
  return fmt::format("{} {} {}{}\n", machine_name(), ::getpid(), std::time(nullptr), round);
}

struct LockHolder {
  std::string who;  // description for users; empty: unknown
  OutputAttempt attempt = {};

  // Returns whether the holder belongs to the run of `mine`. is_before() also requires an earlier
  // attempt.
  bool is_of(const OutputAttempt& mine) const {
    return !mine.run.empty() && attempt.run == mine.run;
  }
  bool is_before(const OutputAttempt& mine) const {
    return is_of(mine) && attempt.index < mine.index;
  }
};

// Returns the start of the file, or nullopt if it cannot be read.
std::optional<std::string> try_read(int file) {
  char text[512] = {};
  const ssize_t size = ::pread(file, text, sizeof(text) - 1, 0);
  if (size < 0) return std::nullopt;
  return std::string(text, static_cast<size_t>(size));
}

std::string read_text(int file) {
  return try_read(file).value_or("");
}

// Parses the text of describe_self(). Does not trust it, because any process may have written it.
LockHolder parse_holder(const std::string& text) {
  std::istringstream words(text);
  std::string host;
  int64_t pid = 0;
  std::time_t since = 0;
  words >> host >> pid >> since;
  const bool plain = std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
  std::tm date{};
  if (!words || !plain || ::gmtime_r(&since, &date) == nullptr) return {};
  LockHolder holder{
      fmt::format("process {} on {}, since {:%Y-%m-%d %H:%M:%S} UTC", pid, host, date)};
  OutputAttempt attempt;
  if (words >> attempt.run >> attempt.index) holder.attempt = attempt;
  return holder;
}

[[noreturn]] void refuse(const fs::path& target, int file) {
  std::string holder = parse_holder(read_text(file)).who;
  for (int attempt = 0; holder.empty() && attempt < 20; ++attempt) {  // it may have just started
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    holder = parse_holder(read_text(file)).who;
  }
  throw OutputInUse(
      "{} is the output of a run that is still active ({}): choose another folder, or wait until "
      "it ends",
      target.string(), holder.empty() ? "unknown process" : holder);
}

}  // namespace

void OutputLock::require_free(const fs::path& target, const OutputAttempt& mine) {
  const fs::path path = resolve_links(target);
  const auto directory = Directory::find(path.parent_path());
  if (!directory) return;
  const FileDescriptor file(
      ::openat(directory->get(), lock_file_name(path).c_str(), O_RDONLY | kOpenFlags));
  if (file.get() < 0 || !is_locked(file.get())) return;
  if (!parse_holder(read_text(file.get())).is_before(mine)) refuse(target, file.get());
}

OutputLock::OutputLock(const fs::path& target, OutputAttempt mine)
    : target_(target),
      mine_(std::move(mine)),
      directory_(Directory::create(resolve_links(target).parent_path())),
      name_(lock_file_name(resolve_links(target))) {
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (!open_file() || !try_lock()) continue;
    write_holder();
    if (is_current()) return;  // no later attempt came while the file named an earlier one
  }
  throw Error("{} cannot be locked: other processes keep creating and removing it", path());
}

std::string OutputLock::path() const {
  return (directory_.path() / name_).string();
}

// Returns false if another process created or removed the file meanwhile; a run holds or held it.
bool OutputLock::open_file() {
  const auto open = [&](int how) {
    return FileDescriptor(::openat(directory_.get(), name_.c_str(), how | kOpenFlags, 0644));
  };
  file_ = open(O_RDWR);
  if (file_.get() < 0 && errno == ENOENT) {
    file_ = open(O_RDWR | O_CREAT | O_EXCL);
    if (file_.get() < 0 && errno == EEXIST) return false;
  }
  struct stat status {};
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) {
    throw Error("{} cannot be created: {}", path(), system_reason(errno));
  }
  if (status.st_nlink == 0) return false;
  // A file with a second name may be any file.
  const bool ours = S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && status.st_nlink == 1;
  if (ours) return true;
  if (is_locked(file_.get())) refuse(target_, file_.get());
  throw Error(
      "{} is not a valid lock file (it belongs to uid {}): remove it, or choose another output",
      path(), status.st_uid);
}

// Returns false if the locked file has lost its name. This function itself removes the file of an
// earlier attempt.
bool OutputLock::try_lock() {
  const struct flock lock = whole_file_lock(F_WRLCK);
  if (::fcntl(file_.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) {
      if (!parse_holder(read_text(file_.get())).is_before(mine_)) refuse(target_, file_.get());
      if (is_current()) ::unlinkat(directory_.get(), name_.c_str(), 0);
      return false;
    }
    warning_ = fmt::format(
        "{} cannot be locked ({}): a second run that writes to {} would not be detected", path(),
        system_reason(errno), target_.string());
  }
  const LockHolder before = parse_holder(read_text(file_.get()));
  if (before.is_of(mine_) && before.attempt.index > mine_.index) {
    throw Error("{} belongs to round {} of this run ({}): round {} is over", target_.string(),
                before.attempt.index, before.who, mine_.index);
  }
  return is_current();
}

void OutputLock::check() const {
  if (mine_.run.empty()) return;
  const FileDescriptor file(::openat(directory_.get(), name_.c_str(), O_RDONLY | kOpenFlags));
  const bool is_gone = file.get() < 0 && errno == ENOENT;
  const std::optional<std::string> text = is_gone ? "" : try_read(file.get());
  // A file that cannot be read now, as on a failing network, names no owner. Another file that is
  // still empty belongs to an attempt that is starting.
  if (!text || *text == holder_) return;
  if (text->empty() && !is_gone && is_same_file(file.get(), file_.get()).value_or(true)) return;
  const LockHolder holder = parse_holder(*text);
  const std::string by = !holder.is_of(mine_)
                             ? "an unknown process"
                             : fmt::format("round {} of this run", holder.attempt.index);
  throw OutputTakenOver(
      "{} was taken over by {}{}: this process, of round {}, exits and writes nothing more",
      target_.string(), by, holder.who.empty() ? "" : fmt::format(" ({})", holder.who),
      mine_.index);
}

// Returns whether the name still refers to our file.
bool OutputLock::is_current() const {
  return names_file(file_.get(), directory_.get(), name_.c_str());
}

void OutputLock::write_holder() {
  holder_ = describe_self(mine_);
  const auto length = static_cast<ssize_t>(holder_.size());
  if (::ftruncate(file_.get(), 0) == 0 &&
      ::pwrite(file_.get(), holder_.data(), holder_.size(), 0) == length) {
    return;
  }
  const int reason = errno;
  ::unlinkat(directory_.get(), name_.c_str(), 0);
  throw Error("{} cannot be written: {}", path(), system_reason(reason));
}

OutputLock::~OutputLock() {
  // If the file system has no locks, a later attempt writes to the same file and then owns it.
  if (is_current() && read_text(file_.get()) == holder_)
    ::unlinkat(directory_.get(), name_.c_str(), 0);
  fs::path directory = directory_.path();
  for (int left = directory_.num_created(); left > 0 && ::rmdir(directory.c_str()) == 0; --left) {
    directory = directory.parent_path();
  }
}

}  // namespace zeroth
