#include "base/machine/process_limits.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cerrno>

#include "base/error.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace zeroth::process_limits_test {
namespace {

template <typename Resource>
void limit_to(Resource resource, rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  ::setrlimit(resource, &limit);
}

}  // namespace

TEST_CASE("a reason that is a limit of the process names the limit") {
  CHECK(system_reason(ENOENT) == "No such file or directory");
  CHECK(system_reason(EMFILE) == "Too many open files (ulimit -n)");
  const ChildResult result = in_child([] {
    limit_to(RLIMIT_FSIZE, 1 << 30, 1 << 30);
    return system_reason(EFBIG) == "File too large (ulimit -f: 1073741824 bytes)" ? 0 : 1;
  });
  CHECK(result.status == 0);
}

TEST_CASE("a thread that cannot be started names the address space, and how many there may be") {
  const ChildResult result = in_child([] {
    limit_to(RLIMIT_NPROC, 1000, 1000);
    limit_to(RLIMIT_AS, rlim_t{1} << 40, rlim_t{1} << 40);
    const std::string space = "each process may use 1.00 TiB of address space: ulimit -v";
    if (system_reason(EAGAIN) != "Resource temporarily unavailable (" + space + ", or ulimit -u)")
      return 1;
    return system_reason(ENOMEM) == "Cannot allocate memory (" + space + ")" ? 0 : 2;
  });
  CHECK(result.status == 0);
}

TEST_CASE("a limit of the address space is told in bytes") {
  const ChildResult result = in_child([] {
    limit_to(RLIMIT_AS, rlim_t{1} << 40, rlim_t{1} << 40);
    const std::string expected = "each process may use 1.00 TiB of address space: ulimit -v";
    return address_space_limit() == expected ? 0 : 1;
  });
  CHECK(result.status == 0);
}

TEST_CASE("a low limit of open files is raised, or an error where it cannot be") {
  const ChildResult raised = in_child([] {
    limit_to(RLIMIT_NOFILE, 6, 40);
    raise_open_file_limit(32);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur == 32 ? 0 : 1;
  });
  CHECK(raised.status == 0);
  const ChildResult refused = in_child([] {
    limit_to(RLIMIT_NOFILE, 6, 6);
    return message_of<Error>([] { raise_open_file_limit(32); }) ==
                   "this process may have 6 files open (ulimit -n), but needs 32"
               ? 0
               : 1;
  });
  CHECK(refused.status == 0);
}

}  // namespace zeroth::process_limits_test
