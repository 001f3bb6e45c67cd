#include "launcher/rank_log.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "base/error.h"
#include "tests/launcher/launched.h"

namespace zeroth::launcher {
namespace {

std::time_t local_time(int year, int month, int day, int hour) {
  std::tm time{};
  time.tm_year = year - 1900;
  time.tm_mon = month - 1;
  time.tm_mday = day;
  time.tm_hour = hour;
  time.tm_isdst = -1;
  return std::mktime(&time);
}

}  // namespace

TEST_CASE("each rank gets a file with DeepSpeed's name, in a folder that is made") {
  const TempFolder folder;
  const auto logs = open_rank_logs(folder.path() / "a/b", local_time(2026, 3, 9, 7), 2);
  REQUIRE(logs.size() == 2);
  CHECK(::write(logs[1].get(), "one\n", 4) == 4);
  CHECK(read_text(folder.path() / "a/b/20260309070000_rank0.log").empty());
  CHECK(read_text(folder.path() / "a/b/20260309070000_rank1.log") == "one\n");
}

TEST_CASE("a log is never written over, and a folder that cannot be is refused") {
  const TempFolder folder;
  const std::time_t now = local_time(2026, 3, 9, 7);
  open_rank_logs(folder.path(), now, 1);
  CHECK_THROWS_WITH_AS(open_rank_logs(folder.path(), now, 1),
                       doctest::Contains("20260309070000_rank0.log cannot be made: File exists"),
                       Error);
  std::ofstream(folder.path() / "file") << "x";
  CHECK_THROWS_WITH_AS(open_rank_logs(folder.path() / "file", now, 1),
                       doctest::Contains("it is a file, but should be a folder"), Error);
  CHECK_THROWS_WITH_AS(open_rank_logs(folder.path() / "file/below", now, 1),
                       doctest::Contains("the folder cannot be made"), Error);
}

}  // namespace zeroth::launcher
