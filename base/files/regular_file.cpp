#include "base/files/regular_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/machine/process_limits.h"

namespace zeroth {
namespace {

const char* describe_file_type(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a device";
  return "a block device";
}

[[noreturn]] void refuse(const std::filesystem::path& path, mode_t mode) {
  throw Error("{} is {}, expected a file", path.string(), describe_file_type(mode));
}

// Throws the error of a failed open. A socket fails there already, so its type is checked here too.
[[noreturn]] void throw_open_error(const std::filesystem::path& path, int reason) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) refuse(path, status.st_mode);
  throw Error("cannot open {}: {}", path.string(), system_reason(reason));
}

}  // namespace

// O_NONBLOCK lets open() return for a FIFO without a writer. It has no effect on a regular file.
RegularFile::RegularFile(const std::filesystem::path& path)
    : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (file_.get() < 0) throw_open_error(path, errno);
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) {
    throw Error("cannot stat {}: {}", path.string(), system_reason(errno));
  }
  if (!S_ISREG(status.st_mode)) refuse(path, status.st_mode);
  size_ = static_cast<size_t>(status.st_size);
}

std::string read_file(const std::filesystem::path& path, size_t max_bytes) {
  const RegularFile file(path);
  if (file.size() > max_bytes) {
    throw Error("{} has {} bytes; the limit is {}", path.string(), file.size(), max_bytes);
  }
  // Reads one byte more than the size to detect the end: the file may have grown since, and files
  // of /proc report no size.
  std::string text(file.size() + 1, '\0');
  size_t done = 0;
  while (true) {
    const ssize_t count = ::read(file.descriptor(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error("cannot read {}: {}", path.string(), system_reason(errno));
    if (count == 0) break;
    done += static_cast<size_t>(count);
    if (done > max_bytes) {
      throw Error("{} has {} bytes or more; the limit is {}", path.string(), done, max_bytes);
    }
    if (done == text.size()) text.resize(std::min(2 * text.size() + 4096, max_bytes + 1));
  }
  text.resize(done);
  return text;
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const RegularFile file(path);  // the mapping stays valid after it is closed
  if (file.size() == 0) return;
  void* const memory = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (memory == MAP_FAILED) throw Error("cannot map {}: {}", path.string(), system_reason(errno));
  bytes_ = {static_cast<const std::byte*>(memory), file.size()};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

void MappedFile::drop_pages(std::span<const std::byte> range) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = (first + range.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace zeroth
