#include "comm/groups/rank_table.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <regex>
#include <thread>

#include "base/error.h"
#include "tests/support/child_process.h"

namespace zeroth::comm::rank_table_test {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::shared_ptr<SharedSegment> segment_for(int size) {
  return SharedSegment::create(RankTable::bytes(size));
}

// A process that enters itself as `rank` and then does nothing.
pid_t start_rank(const std::shared_ptr<SharedSegment>& segment, int rank, int size) {
  const pid_t child = fork();
  if (child != 0) return child;
  RankTable table(segment, rank, size);
  table.issue(1, "all-reduce of sums");
  table.finish(1);
  for (;;) pause();
}

void wait_for(const RankTable& table, const std::string& text) {
  for (int i = 0; i < 2000 && !has(table.explain(2, {}), text); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

TEST_CASE("a rank that is there already is not taken over by a second one of that number") {
  const auto segment = segment_for(2);
  const RankTable one(segment, 1, 2);
  const std::string expected = fmt::format(
      "rank 1 of this run is already process {}: RANK is duplicate, or two runs use the same "
      "MASTER_ADDR and MASTER_PORT",
      getpid());
  CHECK_THROWS_WITH_AS(RankTable(segment, 1, 2), expected.c_str(), Error);
}

TEST_CASE("the table tells who arrived, who did not, and what these did last") {
  const auto segment = segment_for(4);
  RankTable zero(segment, 0, 4), one(segment, 1, 4), two(segment, 2, 4);
  for (RankTable* table : {&zero, &one, &two}) table->issue(1, "all-reduce of sums");
  one.finish(1);
  zero.issue(2, "all-gather of layer 3");
  CHECK(has(zero.explain(2, {}), "rank 0 arrived; missing: rank 1 (process "));
  for (const char* last : {"finished", "started"}) {
    const std::regex ago(fmt::format(R"(\) last {} all-reduce of sums \d+\.\d s ago)", last));
    CHECK(std::regex_search(zero.explain(2, {}), ago));
  }
  CHECK(has(zero.explain(2, {}), "rank 3 has not connected"));
  two.issue(2, "all-gather of layer 3");
  CHECK(has(zero.explain(2, {2}), ") last started this all-gather of layer 3"));
}

TEST_CASE("a rank that is stopped or killed is known to be so") {
  const auto segment = segment_for(2);
  RankTable table(segment, 0, 2);
  table.issue(2, "all-gather of layer 3");
  const pid_t child = start_rank(segment, 1, 2);
  wait_for(table, "last finished all-reduce of sums");
  CHECK(table.is_alive(1));
  kill(child, SIGSTOP);
  wait_for(table, "stopped");
  CHECK(has(table.explain(2, {}), "missing: rank 1 (process " + std::to_string(child) +
                                      ", stopped) last finished all-reduce of sums"));
  CHECK(table.is_alive(1));
  kill(child, SIGKILL);
  wait_for(table, "has ended");
  CHECK_FALSE(table.is_alive(1));
  CHECK(has(table.explain(2, {}), ", has ended) last finished all-reduce of sums"));
  waitpid(child, nullptr, 0);
}

TEST_CASE("that no file can be opened does not make a rank that lives one that is gone") {
  const ChildResult result = in_child([] {
    const auto segment = segment_for(2);
    const RankTable table(segment, 0, 2), other(segment, 1, 2);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const bool reported =
        has(table.explain(1, {}), fmt::format("rank 1 (process {}) has", getpid()));
    return reported && table.is_alive(1) ? 0 : 1;
  });
  CHECK(result.status == 0);
}

TEST_CASE("a rank that closes its group has left; a long description is cut") {
  const auto segment = segment_for(2);
  RankTable table(segment, 0, 2);
  {
    RankTable other(segment, 1, 2);
    other.issue(1, std::string(1000, 'x'));
    CHECK(table.is_alive(1));
  }
  CHECK_FALSE(table.is_alive(1));
  CHECK(has(table.last(1), ", has left) last started xxxxx"));
  CHECK(table.last(1).size() < 300);
}

}  // namespace zeroth::comm::rank_table_test
