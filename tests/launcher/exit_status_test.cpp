#include "launcher/run/exit_status.h"

#include <doctest/doctest.h>

#include <csignal>
#include <vector>

namespace zeroth::launcher::exit_status_test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWindow{200};

RankFailure exited(int rank, int code, int since_ms = 0, bool /*after_stop*/ = false) {
  return {{rank, {false, code}}, milliseconds(since_ms)};
}

RankFailure killed(int rank, int signal, int since_ms = 0, bool after_stop = false) {
  return {{rank, {true, signal}}, milliseconds(since_ms), after_stop && signal == SIGTERM};
}

int cause(const std::vector<RankFailure>& failures) {
  return find_root_cause(failures, kWindow).rank;
}

}  // namespace

TEST_CASE("the first death is the cause") {
  CHECK(cause({exited(2, 3), exited(0, 1, 5, true), exited(1, 1, 6, true)}) == 2);
  CHECK(cause({killed(1, SIGSEGV), killed(0, SIGABRT, 3, true)}) == 1);
}

TEST_CASE("a signal soon after the first exit is the cause") {
  CHECK(cause({exited(0, 1), killed(1, SIGKILL)}) == 1);
  CHECK(cause({exited(0, 1), killed(1, SIGKILL, 150, true)}) == 1);
  CHECK(cause({exited(0, 1), killed(1, SIGTERM)}) == 1);
}

TEST_CASE("a signal that came later, or is the launcher's own SIGTERM, is not") {
  CHECK(cause({exited(0, 1), killed(1, SIGKILL, 3000, true)}) == 0);
  CHECK(cause({exited(0, 1), killed(1, SIGTERM, 1, true)}) == 0);
}

TEST_CASE("endings are told in words and as a shell's status") {
  CHECK(describe(ExitStatus{false, 3}) == "ended with exit code 3");
  CHECK(describe(ExitStatus{true, SIGSEGV}) == "was killed by SIGSEGV");
  CHECK(to_exit_code({false, 3}) == 3);
  CHECK(to_exit_code({true, SIGKILL}) == 137);
}

TEST_CASE("a death's message holds the rank, how, and the last lines") {
  CHECK(describe_failure(exited(4, 3)) == "rank 4 ended with exit code 3");
  CHECK(describe_last_lines({"one", "two"}) == "; its last lines:\n  | one\n  | two");
  CHECK(describe_last_lines({}) == "; it had printed nothing");
  CHECK(describe_failure(killed(1, SIGKILL)) == "rank 1 was killed by SIGKILL");
  RankFailure explained = killed(1, SIGKILL);
  explained.reason = "out of memory";
  CHECK(describe_failure(explained) == "rank 1 was killed by SIGKILL (out of memory)");
}

TEST_CASE(
    "a death on one of several hosts names it, and a lost host is the cause of its ranks' ends") {
  RankFailure there = killed(5, SIGKILL);
  there.host = "node2";
  there.reason = "out of memory";
  CHECK(describe_failure(there) == "rank 5 on host node2 was killed by SIGKILL (out of memory)");
  there.exit_status = kLostNodeExit;
  there.lost_reason = "no heartbeat for 15 s";
  CHECK(describe_failure(there) == "host node2 is lost: no heartbeat for 15 s; rank 5 ran there");
  CHECK(to_exit_code(kLostNodeExit) == 1);
}

TEST_CASE("the cause of an end is one line with what the rank said of an error") {
  RankFailure failure = exited(3, 1);
  CHECK(describe_root_cause(failure, {}) == "rank 3 ended with exit code 1");
  CHECK(describe_root_cause(failure, {"step 3", "  the end ", " "}) ==
        "rank 3 ended with exit code 1: the end ");
  CHECK(describe_root_cause(failure,
                            {"Error: a", "finetune: error: no room", "  make some", "bye"}) ==
        "rank 3 ended with exit code 1: finetune: error: no room");
  failure.exit_status = {true, SIGABRT};
  CHECK(describe_root_cause(failure, {"  what():  std::bad_alloc"}) ==
        "rank 3 was killed by SIGABRT: what():  std::bad_alloc");
  failure.exit_status = {true, SIGKILL};
  failure.reason = "out of memory";
  CHECK(describe_root_cause(failure, {"error: of before"}) ==
        "rank 3 was killed by SIGKILL (out of memory)");
  failure.host = "b";
  failure.lost_reason = "it is silent";
  CHECK(describe_root_cause(failure, {"error: of before"}) ==
        "host b is lost: it is silent; rank 3 ran there");
}

TEST_CASE("a rank obeys a signal by 0, by dying of it, or by a shell's code for it") {
  CHECK(is_requested_exit({false, 0}, SIGTERM));
  CHECK(is_requested_exit({true, SIGTERM}, SIGTERM));
  CHECK(is_requested_exit({false, 143}, SIGTERM));
  CHECK_FALSE(is_requested_exit({false, 130}, SIGTERM));
  CHECK_FALSE(is_requested_exit({false, 1}, SIGTERM));
  CHECK_FALSE(is_requested_exit({true, SIGSEGV}, SIGTERM));
}

}  // namespace zeroth::launcher::exit_status_test
