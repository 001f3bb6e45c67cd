#include "base/machine/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/machine/machine_id.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"

namespace zeroth {
namespace {

constexpr unsigned kNoCode = 8;  // MFD_NOEXEC_SEAL, which some systems require; since Linux 6.3
constexpr int kFixed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Returns the id of the running kernel, which a sandbox may hide. A ticket is valid for one kernel
// only.
std::string kernel_id() {
  const std::string id = boot_id();
  return id.empty() ? "hidden" : id;
}

struct Request {
  std::string kernel;
  uint32_t pid = 0, fd = 0;
  uint64_t inode = 0;
};

Request parse(std::string_view text) {
  const std::string_view kernel = next_field(text, ':');
  const auto pid = parse_number<uint32_t>(next_field(text, ':'));
  const auto fd = parse_number<uint32_t>(next_field(text, ':'));
  const auto inode = parse_number<uint64_t>(next_field(text, ':'));
  if (!pid || !fd || !inode || !text.empty()) throw Error("invalid ticket of shared memory");
  return {std::string(kernel), *pid, *fd, *inode};
}

struct stat status_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw Error("fstat: {}", system_reason(errno));
  return status;
}

void check_is_ours(int fd, const Request& wanted, const std::string& name,
                   const std::string& path) {
  const struct stat status = status_of(fd);
  if (status.st_uid != ::geteuid())
    throw Error("{} belongs to user {}, not to this process's user {}", path, status.st_uid,
                ::geteuid());
  std::error_code unknown;
  const auto kernel_name = std::filesystem::read_symlink(proc_fd_path(fd), unknown);
  if (unknown || kernel_name.string() != fmt::format("/memfd:{} (deleted)", name))
    throw Error("{} is not the shared memory '{}' of this run", path, name);
  if (status.st_ino != wanted.inode)
    throw Error("{} belongs to another process: this process runs in its own PID namespace", path);
}

}  // namespace

MemoryFile MemoryFile::create(const std::string& name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  FileDescriptor fd(::memfd_create(name.c_str(), kFlags | kNoCode));
  if (fd.get() < 0 && errno == EINVAL) fd = FileDescriptor(::memfd_create(name.c_str(), kFlags));
  if (fd.get() < 0) throw Error("cannot create shared memory: {}", system_reason(errno));
  return MemoryFile(std::move(fd));
}

MemoryFile MemoryFile::open(const std::string& ticket, const std::string& name) {
  const Request wanted = parse(ticket);
  if (wanted.kernel != kernel_id()) throw Error("its creator runs on another host");
  const std::string path = fmt::format("/proc/{}/fd/{}", wanted.pid, wanted.fd);
  // Opens with O_PATH and inspects the file first, because a full open may have side effects (FIFO,
  // device). The file opened afterwards is the one inspected, even if `pid` is reused meanwhile.
  const FileDescriptor seen(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (seen.get() < 0) throw Error("cannot open {}: {}", path, system_reason(errno));
  check_is_ours(seen.get(), wanted, name, path);
  FileDescriptor fd(::open(proc_fd_path(seen.get()).c_str(), O_RDWR | O_CLOEXEC));
  if (fd.get() < 0) throw Error("cannot open {}: {}", path, system_reason(errno));
  return MemoryFile(std::move(fd));
}

std::string MemoryFile::ticket() const {
  ZEROTH_CHECK(get() >= 0, "the memory file is closed");
  return fmt::format("{}:{}:{}:{}", kernel_id(), ::getpid(), get(), inode());
}

uint64_t MemoryFile::inode() const {
  return status_of(get()).st_ino;
}

uint64_t MemoryFile::size() const {
  return static_cast<uint64_t>(status_of(get()).st_size);
}

void MemoryFile::seal_size(uint64_t bytes) {
  // Allocates the memory now. Otherwise a shortage later is a SIGBUS in any process that touches
  // it. Any signal interrupts the call and releases what it has allocated.
  int status = -1;
  do {
    status = ::fallocate(get(), 0, 0, static_cast<off_t>(bytes));
  } while (status != 0 && errno == EINTR);
  if (status != 0 || ::fcntl(get(), F_ADD_SEALS, kFixed) != 0)
    throw Error("cannot create {} bytes of shared memory: {}", bytes, system_reason(errno));
}

bool MemoryFile::has_sealed_size() const {
  const int seals = ::fcntl(get(), F_GET_SEALS);
  return seals >= 0 && (seals & kFixed) == kFixed;
}

}  // namespace zeroth
