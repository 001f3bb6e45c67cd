#include "base/machine/signals.h"

#include <doctest/doctest.h>

#include <csignal>

namespace zeroth::signals_test {

TEST_CASE("a terminal that closes asks for the end, unless that is ignored") {
  const auto before = ::signal(SIGHUP, SIG_DFL);
  CHECK(termination_signals() == std::vector<int>{SIGINT, SIGTERM, SIGHUP});
  ::signal(SIGHUP, SIG_IGN);
  CHECK(is_ignored(SIGHUP));
  CHECK(termination_signals() == std::vector<int>{SIGINT, SIGTERM});
  ::signal(SIGHUP, before);
}

}  // namespace zeroth::signals_test
