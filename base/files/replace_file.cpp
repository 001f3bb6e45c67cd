#include "base/files/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/process_limits.h"
#include "base/machine/standard_streams.h"

namespace zeroth {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, int reason) {
  throw Error("{} cannot be written: {}", path.string(), system_reason(reason));
}

// A TemporaryFile is the file before the rename. The destructor removes it unless it was renamed.
class TemporaryFile {
 public:
  TemporaryFile(const std::filesystem::path& path, std::string_view text)
      : path_(path), temporary_path_(path.string() + ".part") {
    ::unlink(temporary_path_.c_str());
    file_ = FileDescriptor(
        ::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file_.get() < 0) refuse(path_, errno);
    if (write_all(file_.get(), text) && is_flushed()) return;
    const int reason = errno;
    remove();
    refuse(path_, reason);
  }
  ~TemporaryFile() {
    if (!committed_) remove();
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void commit() {
    if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) refuse(path_, errno);
    committed_ = true;
  }

 private:
  // A network file system may report a failed write only when a descriptor is closed.
  bool is_flushed() const { return ::close(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0)) == 0; }

  // Removes the file unless another process has replaced it with its own.
  void remove() const {
    if (names_file(file_.get(), AT_FDCWD, temporary_path_.c_str()))
      ::unlink(temporary_path_.c_str());
  }

  const std::filesystem::path& path_;
  std::string temporary_path_;
  FileDescriptor file_;  // stays open: the kernel reuses a file's inode number after it is closed
  bool committed_ = false;
};

}  // namespace

void replace_file(const std::filesystem::path& path, std::string_view text,
                  const OutputGuard& guard) {
  if (guard) guard();  // otherwise this would remove another process's file
  TemporaryFile file(path, text);
  if (guard) guard();
  file.commit();
}

}  // namespace zeroth
