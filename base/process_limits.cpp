#include "base/process_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/units.h"

namespace zeroth {
namespace {

using Resource = decltype(RLIMIT_AS);

std::optional<rlim_t> limit_on(Resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// Empty where the error has nothing to do with a limit.
std::string limit_of(int error) {
  if (error == EMFILE) return " (ulimit -n)";
  if (const auto most = limit_on(RLIMIT_FSIZE); error == EFBIG && most)
    return fmt::format(" (ulimit -f: {} bytes)", *most);
  if (error == ENOMEM && limit_on(RLIMIT_AS)) return " (ulimit -v)";
  if (error == EAGAIN && limit_on(RLIMIT_NPROC)) return " (ulimit -u)";
  return "";
}

}  // namespace

std::string system_reason(int error) {
  return std::strerror(error) + limit_of(error);
}

std::optional<int64_t> file_size_limit() {
  const auto most = limit_on(RLIMIT_FSIZE);
  return most ? std::optional(static_cast<int64_t>(std::min<rlim_t>(*most, INT64_MAX)))
              : std::nullopt;
}

std::string address_space_limit() {
  const auto most = limit_on(RLIMIT_AS);
  if (!most) return "";
  return fmt::format("each process may use {} of address space: ulimit -v",
                     format_bytes(static_cast<int64_t>(*most)));
}

void require_open_files(int needed) {
  rlimit limit{};
  const auto least = static_cast<rlim_t>(needed);
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= least) return;
  if (limit.rlim_max < least)
    throw Error("this process may have {} files open (ulimit -n), but needs {}", limit.rlim_max,
                needed);
  limit.rlim_cur = least;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace zeroth
