#include "launcher/run/job_files.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "base/error.h"
#include "tests/launcher/launched_process.h"
#include "tests/support/second_user.h"

namespace zeroth::launcher::job_files_test {
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

TEST_CASE("the pid stands in the file while its owner lives") {
  const TempFolder directory;
  const std::filesystem::path file = directory.path() / "4711.deepspeed";
  {
    const PidFile pid_file(4711, directory.path());
    CHECK(pid_file.path() == file);
    CHECK(read_text(file) == "4711");
  }
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("what a former process left is replaced, and a link is not followed") {
  const TempFolder directory;
  const std::filesystem::path victim = directory.path() / "victim";
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, directory.path() / "7.deepspeed");
  const PidFile pid_file(7, directory.path());
  CHECK(read_text(directory.path() / "7.deepspeed") == "7");
  CHECK(read_text(victim) == "precious");
}

TEST_CASE("a folder that is not there is an error with the path") {
  CHECK_THROWS_WITH_AS(PidFile(7, "/no/such"),
                       "--save_pid: /no/such/7.deepspeed cannot be written: No such file or "
                       "directory",
                       Error);
}

TEST_CASE("each rank gets a file with DeepSpeed's name, in a folder that is made") {
  const TempFolder directory;
  const auto logs = open_rank_logs(directory.path() / "a/b", local_time(2026, 3, 9, 7), 2);
  REQUIRE(logs.size() == 2);
  CHECK(::write(logs[1].get(), "one\n", 4) == 4);
  CHECK(read_text(directory.path() / "a/b/20260309070000_rank0.log").empty());
  CHECK(read_text(directory.path() / "a/b/20260309070000_rank1.log") == "one\n");
}

TEST_CASE("jobs of an array that start in one second share a folder, each with names of its own") {
  const TempFolder directory;
  const std::time_t now = local_time(2026, 3, 9, 7);
  const auto first = open_rank_logs(directory.path(), now, 1);
  REQUIRE(::write(first[0].get(), "one\n", 4) == 4);
  CHECK(open_rank_logs(directory.path(), now, 2).size() == 2);
  CHECK(open_rank_logs(directory.path(), now, 1).size() == 1);
  CHECK(read_text(directory.path() / "20260309070000_rank0.log") == "one\n");
  for (const char* name : {"-2_rank0.log", "-2_rank1.log", "-3_rank0.log"})
    CHECK(std::filesystem::exists(directory.path() / ("20260309070000" + std::string(name))));

  std::ofstream(directory.path() / "20260309070000-4_rank1.log") << "somebody's";
  CHECK(open_rank_logs(directory.path(), now, 2).size() == 2);
  CHECK_FALSE(std::filesystem::exists(directory.path() / "20260309070000-4_rank0.log"));
  CHECK(std::filesystem::exists(directory.path() / "20260309070000-5_rank1.log"));
}

TEST_CASE("a folder for logs that cannot be is refused") {
  const TempFolder directory;
  const std::time_t now = local_time(2026, 3, 9, 7);
  std::ofstream(directory.path() / "file") << "x";
  CHECK_THROWS_WITH_AS(open_rank_logs(directory.path() / "file", now, 1),
                       doctest::Contains("it is a file, but should be a folder"), Error);
  CHECK_THROWS_WITH_AS(open_rank_logs(directory.path() / "file/below", now, 1),
                       doctest::Contains("the folder cannot be created"), Error);
}

TEST_CASE("logs are not written through a link of another user" * in_neighbours) {
  const StickyFolder shared;
  const std::filesystem::path victim = shared.own("victim"), link = shared / "logs";
  if (!as_nobody([&] { return ::symlink(victim.c_str(), link.c_str()) == 0; })) return;
  CHECK_THROWS_WITH_AS(open_rank_logs(link, local_time(2026, 3, 9, 7), 1),
                       doctest::Contains("logs is a link of another user (uid 65534)"), Error);
  CHECK(std::filesystem::is_empty(victim));
}

}  // namespace zeroth::launcher::job_files_test
