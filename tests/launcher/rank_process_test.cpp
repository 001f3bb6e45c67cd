#include "launcher/run/rank_process.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "launcher/run/find_program.h"
#include "tests/launcher/launched.h"

namespace zeroth::launcher {
namespace {

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = ::read(fd, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(count));
  return text;
}

RankProcess start(const std::vector<std::string>& mode, const RankSpec& spec = {}) {
  Program program{rank_program(), {"rank"}};
  program.command.insert(program.command.end(), mode.begin(), mode.end());
  return RankProcess::start(program, spec);
}

Ending wait_for_ending(const RankProcess& process) {
  std::optional<Ending> ending;
  REQUIRE(eventually([&] { return (ending = process.poll_ending()).has_value(); }));
  return *ending;
}

}  // namespace

TEST_CASE("a rank sees the launcher's environment with its own on top") {
  ::setenv("ZEROTH_TEST_KEPT", "kept", 1);
  ::setenv("ZEROTH_TEST_SET", "old", 1);
  const RankSpec spec{0, 0, {{"ZEROTH_TEST_SET", "new = \"x\""}}, {}};
  const RankProcess process = start({"env", "ZEROTH_TEST_KEPT", "ZEROTH_TEST_SET"}, spec);
  CHECK(read_all(process.out.get()) == "ZEROTH_TEST_KEPT=kept\nZEROTH_TEST_SET=new = \"x\"\n");
  ::unsetenv("ZEROTH_TEST_KEPT");
  ::unsetenv("ZEROTH_TEST_SET");
}

TEST_CASE("endings are seen once they happen, and stay") {
  const RankProcess coded = start({"exit", "5"});
  CHECK(wait_for_ending(coded) == Ending{false, 5});
  CHECK(coded.poll_ending() == Ending{false, 5});
  CHECK(wait_for_ending(start({"raise", std::to_string(SIGUSR1)})) == Ending{true, SIGUSR1});
  RankProcess sleeping = start({"sleep"});
  CHECK_FALSE(sleeping.poll_ending());
  sleeping.signal_group(SIGINT);
  CHECK(wait_for_ending(sleeping) == Ending{true, SIGINT});
  sleeping.kill_and_reap();
  sleeping.kill_and_reap();
}

TEST_CASE("a rank that goes out of scope is gone") {
  const TempFolder folder;
  pid_t pid = 0;
  {
    const RankSpec spec{0, 0, {{"PID_DIR", folder.path().string()}}, {}};
    const RankProcess process = start({"stubborn"}, spec);
    REQUIRE(eventually([&] { return !std::filesystem::is_empty(folder.path()); }));
    pid = std::stoi(std::filesystem::directory_iterator(folder.path())->path().filename());
    CHECK(is_alive(pid));
  }
  CHECK_FALSE(is_alive(pid));
}

TEST_CASE("a rank that cannot start throws") {
  const std::vector<std::string> command = {"rank"};
  CHECK_THROWS_AS(RankProcess::start({"/no/such/file", command}, {}), ProgramError);
  CHECK_THROWS_AS(RankProcess::start({"/", command}, {}), ProgramError);
  const RankSpec unbindable{3, 3, {}, {8000}};
  CHECK_THROWS_WITH(RankProcess::start({rank_program(), command}, unbindable),
                    "rank 3 cannot be bound to its cores: Invalid argument; "
                    "--no_bind_cores_to_rank leaves it free");
}

}  // namespace zeroth::launcher
