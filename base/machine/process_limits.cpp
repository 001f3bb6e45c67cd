#include "base/machine/process_limits.h"

#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/text/units.h"

namespace zeroth {
namespace {

using Resource = decltype(RLIMIT_AS);

std::optional<rlim_t> soft_limit_of(Resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// Returns the limits that may cause this error, or an empty text if none does.
std::string describe_limit(int error) {
  if (error == EMFILE) return " (ulimit -n)";
  if (const auto soft_limit = soft_limit_of(RLIMIT_FSIZE); error == EFBIG && soft_limit)
    return fmt::format(" (ulimit -f: {} bytes)", *soft_limit);
  std::vector<std::string> limits;
  if (error == ENOMEM || error == EAGAIN) limits.push_back(address_space_limit());
  // That of a thread that cannot be started; its stack needs address space, too.
  if (error == EAGAIN && soft_limit_of(RLIMIT_NPROC)) limits.emplace_back("ulimit -u");
  std::erase(limits, "");
  return limits.empty() ? "" : fmt::format(" ({})", fmt::join(limits, ", or "));
}

}  // namespace

std::string system_reason(int error) {
  return std::strerror(error) + describe_limit(error);
}

std::optional<int64_t> file_size_limit() {
  const auto soft_limit = soft_limit_of(RLIMIT_FSIZE);
  return soft_limit ? std::optional(static_cast<int64_t>(std::min<rlim_t>(*soft_limit, INT64_MAX)))
                    : std::nullopt;
}

std::string address_space_limit() {
  const auto soft_limit = soft_limit_of(RLIMIT_AS);
  if (!soft_limit) return "";
  return fmt::format("each process may use {} of address space: ulimit -v",
                     format_bytes(static_cast<int64_t>(*soft_limit)));
}

void raise_open_file_limit(int needed) {
  rlimit limit{};
  const auto required = static_cast<rlim_t>(needed);
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= required) return;
  if (limit.rlim_max < required)
    throw Error("this process may have {} files open (ulimit -n), but needs {}", limit.rlim_max,
                needed);
  limit.rlim_cur = required;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace zeroth
