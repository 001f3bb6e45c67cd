#include "checkpoint/real_disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

#include "checkpoint/transfer_buffer.h"

namespace zeroth::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr int kFile = O_NOFOLLOW | O_CLOEXEC;

std::string last_of(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

int64_t free_at(int fd) {
  struct statvfs space {};
  if (::fstatvfs(fd, &space) != 0) return 0;
  return static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
}

// A message about a full disk says how full it is.
[[noreturn]] void fail(const fs::path& path, std::string_view what, int reason, int fd = -1) {
  const bool full = reason == ENOSPC || reason == EDQUOT;
  throw DiskError(path, what, reason,
                  full && fd >= 0 ? fmt::format("; {} bytes are free there", free_at(fd)) : "");
}

// Large transfers of aligned memory pass by the page cache: nobody reads a checkpoint again soon,
// and pages for it are taken from those who compute. Where the file system refuses that, they do
// not.
class PastCache {
 public:
  // `flags`: of the access.
  PastCache(const FileDescriptor& file, int flags)
      : fd_(::open(path_of(file.get()).c_str(), flags | O_DIRECT | O_CLOEXEC)) {}

  // What ::pwrite or ::pread did, at least a byte; none where it cannot be done.
  template <typename Transfer, typename Byte>
  size_t operator()(Transfer transfer, std::span<Byte> bytes, int64_t offset) {
    if (!works_ || !TransferBuffer::is_aligned(bytes, offset)) return 0;
    const ssize_t done = transfer(fd_.get(), bytes.data(), bytes.size(), offset);
    works_ = done > 0;
    return works_ ? static_cast<size_t>(done) : 0;
  }

 private:
  FileDescriptor fd_;
  std::atomic<bool> works_ = fd_.get() >= 0;
};

class RealNewFile : public NewFile {
 public:
  RealNewFile(FileDescriptor fd, fs::path path)
      : fd_(std::move(fd)), past_cache_(fd_, O_WRONLY), path_(std::move(path)) {}

  size_t write(std::span<const std::byte> bytes, int64_t offset) override {
    // Up to a page's begin, and from there on.
    constexpr size_t kPage = TransferBuffer::kAlignment;
    const size_t head = static_cast<size_t>(-offset) % kPage;
    if (bytes.size() < kLarge + head) return write_cached(bytes, offset);
    if (head > 0) return write_cached(bytes.first(head), offset);
    const auto pages = bytes.first(bytes.size() / kPage * kPage);
    if (const size_t done = past_cache_(::pwrite, pages, offset)) return done;
    return write_cached(bytes, offset);
  }
  void sync() override {
    if (::fsync(fd_.get()) != 0) fail(path_, "fsync", errno, fd_.get());
  }
  void close() override {
    if (::close(fd_.give_away()) != 0) fail(path_, "close", errno);
  }

 private:
  static constexpr size_t kLarge = size_t{256} << 10;

  size_t write_cached(std::span<const std::byte> bytes, int64_t offset) {
    while (true) {
      const ssize_t done = ::pwrite(fd_.get(), bytes.data(), bytes.size(), offset);
      if (done > 0) return static_cast<size_t>(done);
      if (done < 0 && errno == EINTR) continue;
      fail(path_, fmt::format("writing {} bytes at byte {}", bytes.size(), offset),
           done == 0 ? EIO : errno, fd_.get());
    }
  }

  FileDescriptor fd_;
  PastCache past_cache_;
  fs::path path_;
};

class RealOldFile : public OldFile {
 public:
  RealOldFile(FileDescriptor fd, int64_t size, fs::path path)
      : fd_(std::move(fd)), past_cache_(fd_, O_RDONLY), size_(size), path_(std::move(path)) {}

  int64_t size() const override { return size_; }
  size_t read(std::span<std::byte> bytes, int64_t offset) override {
    if (const size_t done = past_cache_(::pread, bytes, offset)) return done;
    while (true) {
      const ssize_t done = ::pread(fd_.get(), bytes.data(), bytes.size(), offset);
      if (done >= 0) return static_cast<size_t>(done);
      if (errno != EINTR) {
        fail(path_, fmt::format("reading {} bytes at byte {}", bytes.size(), offset), errno);
      }
    }
  }

 private:
  FileDescriptor fd_;
  PastCache past_cache_;
  int64_t size_;
  fs::path path_;
};

void sync_descriptor(int fd, const fs::path& path) {
  if (::fsync(fd) == 0) return;
  // Some network file systems have nothing to sync of a folder, and say so.
  if (errno != EINVAL && errno != EROFS) fail(path, "fsync", errno, fd);
}

}  // namespace

std::unique_ptr<RealDisk> RealDisk::make(const fs::path& path) {
  Folder folder = Folder::make(path);
  fs::path above = folder.path();
  for (int made = folder.made(); made > 0; --made) {
    above = above.parent_path();
    const FileDescriptor fd(::open(above.c_str(), kFolder));
    if (fd.get() >= 0) sync_descriptor(fd.get(), above);
  }
  return std::unique_ptr<RealDisk>(new RealDisk(std::move(folder)));
}

std::unique_ptr<RealDisk> RealDisk::find(const fs::path& path) {
  auto folder = Folder::find(path);
  if (!folder) return nullptr;
  return std::unique_ptr<RealDisk>(new RealDisk(std::move(*folder)));
}

FileDescriptor RealDisk::folder_of(const std::string& name) const {
  ZEROTH_CHECK(is_plain_path(name), "{} is no name within {}", name, path().string());
  const size_t slash = name.rfind('/');
  return open_folder(slash == name.npos ? "" : name.substr(0, slash));
}

FileDescriptor RealDisk::open_folder(const std::string& name) const {
  FileDescriptor at(::openat(root_.get(), ".", kFolder));
  if (at.get() < 0) fail(path(), "opening the folder", errno);
  if (name.empty()) return at;
  for (const fs::path& part : fs::path(name)) {
    FileDescriptor next(::openat(at.get(), part.c_str(), kFolder));
    if (next.get() < 0) fail(path() / name, "opening the folder", errno);
    at = std::move(next);
  }
  return at;
}

std::unique_ptr<NewFile> RealDisk::create(const std::string& name, int64_t size) {
  const FileDescriptor folder = folder_of(name);
  FileDescriptor fd(
      ::openat(folder.get(), last_of(name).c_str(), O_WRONLY | O_CREAT | O_EXCL | kFile, 0644));
  if (fd.get() < 0) fail(path() / name, "making the file", errno, folder.get());
  // A full disk shows before the first byte, where the file system can tell.
  if (size > 0 && ::fallocate(fd.get(), 0, 0, size) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    fail(path() / name, fmt::format("setting aside {} bytes", size), errno, fd.get());
  }
  return std::make_unique<RealNewFile>(std::move(fd), path() / name);
}

FileDescriptor RealDisk::open_file(const std::string& name, int flags, int64_t& size) const {
  const FileDescriptor folder = folder_of(name);
  // O_NONBLOCK: no wait for the other end of a FIFO.
  FileDescriptor fd(::openat(folder.get(), last_of(name).c_str(), flags | O_NONBLOCK | kFile));
  if (fd.get() < 0) fail(path() / name, "opening the file", errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail(path() / name, "opening the file", errno);
  if (!S_ISREG(status.st_mode)) throw Error("{} is no regular file", (path() / name).string());
  size = status.st_size;
  return fd;
}

std::unique_ptr<NewFile> RealDisk::join(const std::string& name) {
  int64_t size = 0;
  FileDescriptor fd = open_file(name, O_WRONLY, size);
  return std::make_unique<RealNewFile>(std::move(fd), path() / name);
}

std::unique_ptr<OldFile> RealDisk::open(const std::string& name) {
  int64_t size = 0;
  FileDescriptor fd = open_file(name, O_RDONLY, size);
  return std::make_unique<RealOldFile>(std::move(fd), size, path() / name);
}

void RealDisk::make_folder(const std::string& name) {
  const FileDescriptor folder = folder_of(name);
  if (::mkdirat(folder.get(), last_of(name).c_str(), 0777) != 0) {
    fail(path() / name, "making the folder", errno, folder.get());
  }
}

std::vector<Entry> RealDisk::list(const std::string& folder) {
  const FileDescriptor fd = open_folder(folder);
  std::vector<Entry> entries;
  std::error_code failed;
  for (fs::directory_iterator entry(path_of(fd.get()), failed), end; !failed && entry != end;
       entry.increment(failed)) {
    Entry found{.name = entry->path().filename().string()};
    struct stat status {};
    if (::fstatat(fd.get(), found.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    found.kind = S_ISREG(status.st_mode)   ? Entry::Kind::kFile
                 : S_ISDIR(status.st_mode) ? Entry::Kind::kFolder
                                           : Entry::Kind::kOther;
    found.size = status.st_size;
    found.modified = status.st_mtime;
    found.ours = status.st_uid == ::geteuid();
    entries.push_back(std::move(found));
  }
  if (failed) fail(path_to(*this, folder), "listing the folder", failed.value());
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

void RealDisk::rename(const std::string& from, const std::string& to) {
  const FileDescriptor old_folder = folder_of(from), new_folder = folder_of(to);
  if (::renameat(old_folder.get(), last_of(from).c_str(), new_folder.get(), last_of(to).c_str()) !=
      0) {
    fail(path() / from, fmt::format("renaming to {}", to), errno, old_folder.get());
  }
}

bool RealDisk::exchange(const std::string& one, const std::string& other) {
  const FileDescriptor one_folder = folder_of(one), other_folder = folder_of(other);
  if (::renameat2(one_folder.get(), last_of(one).c_str(), other_folder.get(),
                  last_of(other).c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;  // NFS and others
  fail(path() / one, fmt::format("taking the place of {}", other), errno, one_folder.get());
}

void RealDisk::remove_file(const std::string& name) {
  const FileDescriptor folder = folder_of(name);
  if (::unlinkat(folder.get(), last_of(name).c_str(), 0) != 0 && errno != ENOENT) {
    fail(path() / name, "removing the file", errno);
  }
}

void RealDisk::remove_folder(const std::string& name) {
  const FileDescriptor folder = folder_of(name);
  if (::unlinkat(folder.get(), last_of(name).c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    fail(path() / name, "removing the folder", errno);
  }
}

void RealDisk::sync_folder(const std::string& name) {
  const FileDescriptor folder = open_folder(name);
  sync_descriptor(folder.get(), path_to(*this, name));
}

void RealDisk::sync_file(const std::string& name) {
  const FileDescriptor folder = folder_of(name);
  const FileDescriptor fd(::openat(folder.get(), last_of(name).c_str(), O_RDONLY | kFile));
  if (fd.get() < 0) fail(path() / name, "opening the file", errno);
  if (::fsync(fd.get()) != 0) fail(path() / name, "fsync", errno, fd.get());
}

int64_t RealDisk::free_bytes() {
  return free_at(root_.get());
}

}  // namespace zeroth::checkpoint
