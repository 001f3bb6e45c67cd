#include "offload/swap_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"
#include "offload/io_worker.h"

namespace zeroth::offload {
namespace {

namespace fs = std::filesystem;

// Removes swap files that killed runs left. Keeps other users' entries and those that cannot be
// read or removed.
void remove_stale_files(const Directory& nvme) {
  for (const std::string& name : nvme.names()) {
    const auto run = name.starts_with("zeroth-") ? nvme.open_subdirectory(name) : std::nullopt;
    if (!run || !run->is_owned_by_this_user()) continue;
    bool had_files = false;
    for (const std::string& file : run->names()) {
      if (!file.starts_with("rank-") || !file.ends_with(".swap")) continue;
      had_files = true;
      ::unlinkat(run->get(), file.c_str(), 0);
    }
    // An empty directory whose mode is Zeroth's 0700 is of a run that was killed before it created
    // its file, or after it removed the name.
    struct stat status {};
    const bool closed = ::fstat(run->get(), &status) == 0 && (status.st_mode & 0777) == 0700;
    if (had_files || closed) ::unlinkat(nvme.get(), name.c_str(), AT_REMOVEDIR);
  }
}

Directory make_directory(const fs::path& nvme_path) {
  try {
    return Directory::create(nvme_path);
  } catch (const Error& error) {
    throw Error("nvme_path {}: cannot be created: {}", nvme_path.string(), error.what());
  }
}

}  // namespace

std::optional<uint64_t> free_bytes(const fs::path& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) {
    throw Error("cannot get the free space of {}: {}", directory.string(), system_reason(errno));
  }
  if (status.f_blocks == 0) return std::nullopt;
  return uint64_t{status.f_bavail} * status.f_frsize;
}

bool is_in_memory(const fs::path& directory) {
  struct statfs status {};
  return ::statfs(directory.c_str(), &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

SwapFile::SwapFile(const SwapLocation& place, uint64_t bytes, bool direct)
    : size_bytes_(file_aligned(bytes)) {
  const Directory nvme = make_directory(place.nvme_path);
  remove_stale_files(nvme);
  const std::string run = "zeroth-" + place.run_id;
  const std::string name =
      fmt::format("rank-{}{}{}.swap", place.rank, place.kind.empty() ? "" : ".", place.kind);
  path_ = place.nvme_path / run / name;
  make(nvme, run, name);
  reserve(place.nvme_path);
  if (direct) set_direct();
  if (is_in_memory(place.nvme_path)) {
    notes_.push_back(
        fmt::format("{} is held in memory (tmpfs), not on a disk: offload to it "
                    "saves no memory",
                    place.nvme_path.string()));
  }
}

void SwapFile::fail(const char* action, int error) {
  throw Error("cannot {} {}: {}", action, path_, system_reason(error));
}

// Creates the file and removes its name. Other ranks of this node create and remove the same
// directory at the same time.
void SwapFile::make(const Directory& nvme, const std::string& run, const std::string& name) {
  for (int attempt = 0; attempt < 1000 && descriptor() < 0; ++attempt) {
    if (::mkdirat(nvme.get(), run.c_str(), 0700) != 0 && errno != EEXIST) {
      fail("create the folder of", errno);
    }
    const auto directory = nvme.open_subdirectory(run);
    // Another rank has removed it, and a third one may have created it again by now.
    if (!directory && errno == ENOENT) continue;
    if (!directory) fail("create the folder of", errno);
    if (!directory->is_owned_by_this_user()) {
      throw Error("cannot create {}: its folder belongs to another user (uid {})", path_,
                  directory->owner());
    }
    descriptor_ = FileDescriptor(
        ::openat(directory->get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    const int error = descriptor() < 0 ? errno : 0;
    if (error == ENOENT) continue;
    ::unlinkat(directory->get(), name.c_str(), 0);  // this file's name, or one left by another run
    if (error == EEXIST) continue;
    ::unlinkat(nvme.get(), run.c_str(), AT_REMOVEDIR);
    if (error != 0) fail("create", error);
  }
  if (descriptor() < 0) fail("create", EBUSY);
}

void SwapFile::reserve(const fs::path& nvme_path) {
  const auto free = free_bytes(nvme_path);
  if (free && *free < size_bytes_) {
    throw Error("{} needs {} ({} bytes), but {} has {} free ({} bytes)", path_,
                format_bytes(static_cast<int64_t>(size_bytes_)), size_bytes_, nvme_path.string(),
                format_bytes(static_cast<int64_t>(*free)), *free);
  }
  const auto length = static_cast<off_t>(size_bytes_);
  if (length == 0) return;
  int error = EINTR;
  while (error == EINTR) error = ::fallocate(descriptor(), 0, 0, length) == 0 ? 0 : errno;
  if (error == 0) return;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    throw Error("{} needs {} ({} bytes): {}", path_,
                format_bytes(static_cast<int64_t>(size_bytes_)), size_bytes_, system_reason(error));
  }
  // Some file systems cannot reserve; a full disk then fails the write that meets it.
  if (error != EOPNOTSUPP && error != ENOSYS) fail("reserve space for", error);
  if (::ftruncate(descriptor(), length) != 0) fail("set the size of", errno);
}

// Sets O_DIRECT. Some file systems refuse the flag, others the first transfer.
void SwapFile::set_direct() {
  const int flags = ::fcntl(descriptor(), F_GETFL);
  int error = ::fcntl(descriptor(), F_SETFL, flags | O_DIRECT) == 0 ? 0 : errno;
  if (error == 0 && size_bytes_ > 0) {
    alignas(kFileAlignment) const std::byte zeros[kFileAlignment] = {};
    error = ::pwrite(descriptor(), zeros, sizeof(zeros), 0) < 0 ? errno : 0;
  }
  if (error == 0) return;
  if (error != EINVAL) fail("write to", error);
  if (::fcntl(descriptor(), F_SETFL, flags) != 0) fail("set the flags of", errno);
  notes_.push_back(
      fmt::format("{}: its file system does not support O_DIRECT, so transfers go "
                  "through the page cache",
                  path_));
}

}  // namespace zeroth::offload
