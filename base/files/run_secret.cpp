#include "base/files/run_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/error.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/process_limits.h"

namespace zeroth {
namespace {

constexpr size_t kMinSecretBytes = 16;
constexpr mode_t kOthers = 0077;

void check_secret_file(const std::string& path, int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
    throw Error("ZEROTH_SECRET_FILE={}: not a file", path);
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    throw Error("ZEROTH_SECRET_FILE={}: it belongs to user {}, expected {}", path, status.st_uid,
                ::geteuid());
  if ((status.st_mode & kOthers) != 0)
    throw Error("ZEROTH_SECRET_FILE={}: other users can access it (mode {:03o}); chmod 600", path,
                status.st_mode & 0777);
}

}  // namespace

std::string run_secret(const std::optional<std::string>& value,
                       const std::optional<std::string>& file) {
  if (file && value)
    throw Error("environment variables ZEROTH_SECRET and ZEROTH_SECRET_FILE: only one may be set");
  if (!file && !value) return {};
  const std::string secret = file ? read_secret_file(*file) : *value;
  if (secret.size() >= kMinSecretBytes) return secret;
  throw Error(
      "environment variable ZEROTH_SECRET{}: a secret of {} characters, expected at least {}",
      file ? "_FILE=" + *file : "", secret.size(), kMinSecretBytes);
}

std::string read_secret_file(const std::string& path) {
  // O_NONBLOCK: does not block if the path is a FIFO.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw Error("ZEROTH_SECRET_FILE={}: {}", path, system_reason(errno));
  check_secret_file(path, file.get());
  std::array<char, 4096> text{};
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0) throw Error("ZEROTH_SECRET_FILE={}: {}", path, system_reason(errno));
  std::string secret(text.data(), static_cast<size_t>(count));
  secret.erase(secret.find_last_not_of(" \t\r\n") + 1);
  return secret;
}

}  // namespace zeroth
