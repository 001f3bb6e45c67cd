#include "base/replace_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/process_limits.h"

namespace zeroth {

void replace_file(const std::filesystem::path& path, std::string_view text) {
  const std::string part = path.string() + ".part";
  ::unlink(part.c_str());
  errno = 0;
  std::FILE* file = std::fopen(part.c_str(), "wbxe");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) != 0) written = false;
  if (!written || ::rename(part.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    if (file != nullptr) ::unlink(part.c_str());
    throw Error("{} cannot be written: {}", path.string(), system_reason(reason));
  }
}

}  // namespace zeroth
