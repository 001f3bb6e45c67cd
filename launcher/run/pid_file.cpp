#include "launcher/run/pid_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/process_limits.h"

namespace zeroth::launcher {

PidFile::PidFile(pid_t pid, const std::filesystem::path& folder)
    : path_(folder / fmt::format("{}.deepspeed", pid)) {
  ::unlink(path_.c_str());
  // Never through a link that somebody else put into a folder open to all.
  const FileDescriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  const std::string text = std::to_string(pid);
  const bool written = file.get() >= 0 && ::write(file.get(), text.data(), text.size()) ==
                                              static_cast<ssize_t>(text.size());
  if (!written)
    throw Error("--save_pid: {} cannot be written: {}", path_.string(), system_reason(errno));
}

PidFile::~PidFile() {
  ::unlink(path_.c_str());
}

}  // namespace zeroth::launcher
