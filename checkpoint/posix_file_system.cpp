#include "checkpoint/posix_file_system.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "checkpoint/buffered_file.h"

namespace zeroth::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kOpenDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr int kOpenFile = O_NOFOLLOW | O_CLOEXEC;

std::string last_name(const std::string& name) {
  return split_path(name).second;
}

int64_t free_bytes_at(int fd) {
  struct statvfs space {};
  if (::fstatvfs(fd, &space) != 0) return 0;
  return static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
}

// Throws a FileSystemError. The message about a full disk includes its free bytes.
[[noreturn]] void fail(const fs::path& path, std::string_view what, int reason, int fd = -1) {
  const bool full = reason == ENOSPC || reason == EDQUOT;
  throw FileSystemError(
      path, what, reason,
      full && fd >= 0 ? fmt::format("; {} bytes are free there", free_bytes_at(fd)) : "");
}

// DirectIo bypasses the page cache for large transfers of aligned memory: a checkpoint is rarely
// read again soon, and its pages would displace those of the computation. It falls back to cached
// transfers if the file system refuses.
class DirectIo {
 public:
  // Opens `file` again with O_DIRECT. `flags` is the access mode.
  DirectIo(const FileDescriptor& file, int flags)
      : fd_(::open(proc_fd_path(file.get()).c_str(), flags | O_DIRECT | O_CLOEXEC)) {}

  // Returns the bytes that ::pwrite or ::pread transferred; 0 if direct I/O is not possible.
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

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(FileDescriptor fd, fs::path path)
      : fd_(std::move(fd)), direct_io_(fd_, O_WRONLY), path_(std::move(path)) {}

  size_t write(std::span<const std::byte> bytes, int64_t offset) override {
    // Write up to a page boundary first, then from there on.
    constexpr size_t kPage = TransferBuffer::kAlignment;
    const size_t head = static_cast<size_t>(-offset) % kPage;
    if (bytes.size() < kLarge + head) return write_cached(bytes, offset);
    if (head > 0) return write_cached(bytes.first(head), offset);
    const auto pages = bytes.first(bytes.size() / kPage * kPage);
    if (const size_t done = direct_io_(::pwrite, pages, offset)) return done;
    return write_cached(bytes, offset);
  }
  void sync() override {
    if (::fsync(fd_.get()) != 0) fail(path_, "fsync", errno, fd_.get());
  }
  void close() override {
    if (::close(fd_.release()) != 0) fail(path_, "close", errno);
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
  DirectIo direct_io_;
  fs::path path_;
};

class PosixRandomAccessFile : public RandomAccessFile {
 public:
  PosixRandomAccessFile(FileDescriptor fd, int64_t size, fs::path path)
      : fd_(std::move(fd)), direct_io_(fd_, O_RDONLY), size_(size), path_(std::move(path)) {}

  int64_t size() const override { return size_; }
  size_t read(std::span<std::byte> bytes, int64_t offset) override {
    if (const size_t done = direct_io_(::pread, bytes, offset)) return done;
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
  DirectIo direct_io_;
  int64_t size_;
  fs::path path_;
};

void sync_descriptor(int fd, const fs::path& path) {
  if (::fsync(fd) == 0) return;
  // Some network file systems cannot sync a directory and report it.
  if (errno != EINVAL && errno != EROFS) fail(path, "fsync", errno, fd);
}

}  // namespace

std::unique_ptr<PosixFileSystem> PosixFileSystem::make(const fs::path& path) {
  Directory directory = Directory::create(path);
  fs::path above = directory.path();
  for (int made = directory.num_created(); made > 0; --made) {
    above = above.parent_path();
    const FileDescriptor fd(::open(above.c_str(), kOpenDirectory));
    if (fd.get() >= 0) sync_descriptor(fd.get(), above);
  }
  return std::unique_ptr<PosixFileSystem>(new PosixFileSystem(std::move(directory)));
}

std::unique_ptr<PosixFileSystem> PosixFileSystem::find(const fs::path& path) {
  auto directory = Directory::find(path);
  if (!directory) return nullptr;
  return std::unique_ptr<PosixFileSystem>(new PosixFileSystem(std::move(*directory)));
}

FileDescriptor PosixFileSystem::open_parent(const std::string& name) const {
  ZEROTH_CHECK(is_safe_path(name), "{} is not a name within {}", name, path().string());
  return open_directory(split_path(name).first);
}

FileDescriptor PosixFileSystem::open_directory(const std::string& name) const {
  FileDescriptor at(::openat(root_.get(), ".", kOpenDirectory));
  if (at.get() < 0) fail(path(), "opening the folder", errno);
  if (name.empty()) return at;
  for (const fs::path& part : fs::path(name)) {
    FileDescriptor next(::openat(at.get(), part.c_str(), kOpenDirectory));
    if (next.get() < 0) fail(path() / name, "opening the folder", errno);
    at = std::move(next);
  }
  return at;
}

std::unique_ptr<WritableFile> PosixFileSystem::create(const std::string& name, int64_t size) {
  const FileDescriptor directory = open_parent(name);
  FileDescriptor fd(::openat(directory.get(), last_name(name).c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | kOpenFile, 0644));
  if (fd.get() < 0) fail(path() / name, "making the file", errno, directory.get());
  // Detects a full disk before the first byte, if the file system can tell.
  if (size > 0 && ::fallocate(fd.get(), 0, 0, size) != 0) {
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
      fail(path() / name, fmt::format("reserving {} bytes", size), errno, fd.get());
    // Ranks of other machines write into it: beyond the end, an NFS client would fill the page
    // before their bytes with zeros.
    if (::ftruncate(fd.get(), size) != 0)
      fail(path() / name, fmt::format("extending it to {} bytes", size), errno, fd.get());
  }
  return std::make_unique<PosixWritableFile>(std::move(fd), path() / name);
}

FileDescriptor PosixFileSystem::open_file(const std::string& name, int flags, int64_t& size) const {
  const FileDescriptor directory = open_parent(name);
  // O_NONBLOCK: do not wait for the other end of a FIFO.
  FileDescriptor fd(
      ::openat(directory.get(), last_name(name).c_str(), flags | O_NONBLOCK | kOpenFile));
  if (fd.get() < 0) fail(path() / name, "opening the file", errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail(path() / name, "opening the file", errno);
  if (!S_ISREG(status.st_mode)) throw Error("{} is not a regular file", (path() / name).string());
  size = status.st_size;
  return fd;
}

std::unique_ptr<WritableFile> PosixFileSystem::open_shared(const std::string& name) {
  int64_t size = 0;
  FileDescriptor fd = open_file(name, O_WRONLY, size);
  return std::make_unique<PosixWritableFile>(std::move(fd), path() / name);
}

std::unique_ptr<RandomAccessFile> PosixFileSystem::open(const std::string& name) {
  int64_t size = 0;
  FileDescriptor fd = open_file(name, O_RDONLY, size);
  return std::make_unique<PosixRandomAccessFile>(std::move(fd), size, path() / name);
}

void PosixFileSystem::create_directory(const std::string& name) {
  const FileDescriptor directory = open_parent(name);
  if (::mkdirat(directory.get(), last_name(name).c_str(), 0777) != 0) {
    fail(path() / name, "making the folder", errno, directory.get());
  }
}

std::vector<DirectoryEntry> PosixFileSystem::list(const std::string& directory) {
  const FileDescriptor fd = open_directory(directory);
  std::vector<DirectoryEntry> entries;
  std::error_code failed;
  for (fs::directory_iterator entry(proc_fd_path(fd.get()), failed), end; !failed && entry != end;
       entry.increment(failed)) {
    DirectoryEntry found{.name = entry->path().filename().string()};
    struct stat status {};
    if (::fstatat(fd.get(), found.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    found.kind = S_ISREG(status.st_mode)   ? DirectoryEntry::Kind::kFile
                 : S_ISDIR(status.st_mode) ? DirectoryEntry::Kind::kDirectory
                                           : DirectoryEntry::Kind::kOther;
    found.size = status.st_size;
    found.modified = status.st_mtime;
    found.ours = status.st_uid == ::geteuid();
    entries.push_back(std::move(found));
  }
  if (failed) fail(full_path(*this, directory), "listing the folder", failed.value());
  std::sort(entries.begin(), entries.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
  return entries;
}

void PosixFileSystem::rename(const std::string& from, const std::string& to) {
  const FileDescriptor old_directory = open_parent(from), new_directory = open_parent(to);
  if (::renameat(old_directory.get(), last_name(from).c_str(), new_directory.get(),
                 last_name(to).c_str()) != 0) {
    fail(path() / from, fmt::format("renaming to {}", to), errno, old_directory.get());
  }
}

bool PosixFileSystem::exchange(const std::string& one, const std::string& other) {
  const FileDescriptor one_directory = open_parent(one), other_directory = open_parent(other);
  if (::renameat2(one_directory.get(), last_name(one).c_str(), other_directory.get(),
                  last_name(other).c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;  // NFS and others
  fail(path() / one, fmt::format("exchanging with {}", other), errno, one_directory.get());
}

void PosixFileSystem::unlink(const std::string& name, int flags, std::string_view what) const {
  const FileDescriptor directory = open_parent(name);
  if (::unlinkat(directory.get(), last_name(name).c_str(), flags) != 0 && errno != ENOENT) {
    fail(path() / name, what, errno);
  }
}

void PosixFileSystem::remove_file(const std::string& name) {
  unlink(name, 0, "removing the file");
}

void PosixFileSystem::remove_directory(const std::string& name) {
  unlink(name, AT_REMOVEDIR, "removing the folder");
}

void PosixFileSystem::sync_directory(const std::string& name) {
  const FileDescriptor directory = open_directory(name);
  sync_descriptor(directory.get(), full_path(*this, name));
}

void PosixFileSystem::sync_file(const std::string& name) {
  const FileDescriptor directory = open_parent(name);
  const FileDescriptor fd(::openat(directory.get(), last_name(name).c_str(), O_RDONLY | kOpenFile));
  if (fd.get() < 0) fail(path() / name, "opening the file", errno);
  if (::fsync(fd.get()) != 0) fail(path() / name, "fsync", errno, fd.get());
}

int64_t PosixFileSystem::free_bytes() {
  return free_bytes_at(root_.get());
}

}  // namespace zeroth::checkpoint
