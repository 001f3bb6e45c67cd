#include "base/files/regular_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

// Returns how many bytes were read: none at the end of the file.
size_t read_some(const RegularFile& file, std::span<char> bytes,
                 const std::filesystem::path& path) {
  while (true) {
    const ssize_t count = ::read(file.descriptor(), bytes.data(), bytes.size());
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR) throw Error("cannot read {}: {}", path.string(), system_reason(errno));
  }
}

// A LineSplitter assembles parts of a file to lines.
class LineSplitter {
 public:
  explicit LineSplitter(const std::function<void(const FileLine&)>& visit) : visit_(visit) {}

  void add(std::string_view part) {
    while (!part.empty()) {
      const size_t found = part.find('\n');
      const size_t size = found == part.npos ? part.size() : found + 1;
      text_ += part.substr(0, std::min(size, kMaxLineBytes - text_.size()));
      end_ += static_cast<int64_t>(size);
      if (found != part.npos) emit(/*whole=*/true);
      part.remove_prefix(size);
    }
  }
  void finish() {
    if (end_ > begin_) emit(/*whole=*/false);
  }

 private:
  void emit(bool whole) {
    std::string_view text = text_;
    if (whole && text.ends_with('\n')) text.remove_suffix(1);
    if (whole && text.ends_with('\r')) text.remove_suffix(1);
    visit_({.text = text, .begin = begin_, .end = end_, .whole = whole});
    text_.clear();
    begin_ = end_;
  }

  const std::function<void(const FileLine&)>& visit_;
  std::string text_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
};

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
  while (const size_t count = read_some(file, std::span(text).subspan(done), path)) {
    done += count;
    if (done > max_bytes) {
      throw Error("{} has {} bytes or more; the limit is {}", path.string(), done, max_bytes);
    }
    if (done == text.size()) text.resize(std::min(2 * text.size() + 4096, max_bytes + 1));
  }
  text.resize(done);
  return text;
}

void read_exactly(int fd, std::span<char> to, int64_t offset, const std::filesystem::path& path) {
  while (!to.empty()) {
    const ssize_t count = ::pread(fd, to.data(), to.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error("{}: read failed: {}", path.string(), system_reason(errno));
    if (count == 0) throw Error("{} was truncated while it was read", path.string());
    to = to.subspan(static_cast<size_t>(count));
    offset += count;
  }
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

void for_each_line(const std::filesystem::path& path,
                   const std::function<void(const FileLine&)>& visit) {
  const RegularFile file(path);
  std::string bytes(size_t{1} << 20, '\0');
  LineSplitter lines(visit);
  while (const size_t count = read_some(file, bytes, path)) {
    lines.add(std::string_view(bytes).substr(0, count));
  }
  lines.finish();
}

void truncate_file(const std::filesystem::path& path, int64_t bytes) {
  while (::truncate(path.c_str(), bytes) != 0) {
    if (errno != EINTR)
      throw Error("{} cannot be truncated: {}", path.string(), system_reason(errno));
  }
}

}  // namespace zeroth
