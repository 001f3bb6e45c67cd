#include "base/files/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/machine/standard_streams.h"

namespace zeroth {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, int reason) {
  throw Error("{} cannot be written: {}", path.string(), system_reason(reason));
}

// Writes the text. A network file system may report a failed write only when a descriptor is
// closed.
bool write_flushed(int fd, std::string_view text) {
  return write_all(fd, text) && ::close(::fcntl(fd, F_DUPFD_CLOEXEC, 0)) == 0;
}

}  // namespace

TemporaryFile::TemporaryFile(const std::filesystem::path& path)
    : path_(path), temporary_path_(path.string() + ".part") {
  ::unlink(temporary_path_.c_str());
  file_ = FileDescriptor(
      ::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file_.get() < 0) refuse(path_, errno);
}

TemporaryFile::~TemporaryFile() {
  if (!committed_) remove();
}

// Removes the file unless another process has replaced it with its own.
void TemporaryFile::remove() const {
  if (names_file(file_.get(), AT_FDCWD, temporary_path_.c_str())) ::unlink(temporary_path_.c_str());
}

void TemporaryFile::commit() {
  if (!names_file(file_.get(), AT_FDCWD, temporary_path_.c_str()))
    throw Error("{}: another process writes this file, too", path_.string());
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) refuse(path_, errno);
  committed_ = true;
}

void replace_file(const std::filesystem::path& path, std::string_view text,
                  const OutputGuard& guard) {
  if (guard) guard();  // otherwise this would remove another process's file
  TemporaryFile file(path);
  if (!write_flushed(file.descriptor().get(), text)) refuse(path, errno);
  if (guard) guard();
  file.commit();
}

}  // namespace zeroth
