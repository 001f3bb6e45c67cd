#include "base/process_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/units.h"

namespace zeroth {
namespace {

bool is_limited(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// Empty where the error has nothing to do with a limit.
std::string limit_of(int error) {
  if (error == EMFILE) return " (ulimit -n)";
  if (error == EFBIG && is_limited(RLIMIT_FSIZE)) return " (ulimit -f)";
  if (error == ENOMEM && is_limited(RLIMIT_AS)) return " (ulimit -v)";
  if (error == EAGAIN && is_limited(RLIMIT_NPROC)) return " (ulimit -u)";
  return "";
}

}  // namespace

std::string system_reason(int error) {
  return std::strerror(error) + limit_of(error);
}

std::string address_space_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format("each process may use {} of address space: ulimit -v",
                     format_bytes(static_cast<int64_t>(limit.rlim_cur)));
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
