// --no_ssh: a zeroth on each machine, started by hand. Here two on one machine play the hosts.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::by_hand_test {
namespace {

using Words = std::vector<std::string>;

Words sorted(Words lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

class Hosts {
 public:
  Hosts() { directory_.write("hosts", "127.0.0.1 slots=2\nlocalhost slots=1\n"); }

  // `zeroth` as it is typed on one of them.
  Words command(const std::string& node_rank, const Words& program) const {
    Words words = {"-H",      directory_ / "hosts", "--no_ssh",  "--node_rank",
                   node_rank, "--master_addr",      "127.0.0.1", "--master_port=23471"};
    words.insert(words.end(), program.begin(), program.end());
    return words;
  }

  std::string path() const { return directory_ / "hosts"; }

 private:
  TempFolder directory_;
};

}  // namespace

TEST_CASE("each host's zeroth starts its own ranks of all") {
  const Hosts hosts;
  const Words program = {
      rank_program(), "env",         "WORLD_SIZE",  "LOCAL_RANK",     "LOCAL_SIZE",    "CROSS_RANK",
      "CROSS_SIZE",   "MASTER_ADDR", "MASTER_PORT", "ZEROTH_MEETING", "ZEROTH_SECRET", "RANK"};
  const Environment secret = {{"ZEROTH_SECRET", "of this user, as long"}};
  LaunchedProcess first(hosts.command("0", program), secret);
  LaunchedProcess second(hosts.command("1", program), secret);
  const auto lines = [](int rank, int local, int size, int host) {
    Words expected;
    for (const std::string& line :
         {std::string("WORLD_SIZE=3"), fmt::format("LOCAL_RANK={}", local),
          fmt::format("LOCAL_SIZE={}", size), fmt::format("CROSS_RANK={}", host),
          std::string("CROSS_SIZE=2"), std::string("MASTER_ADDR=127.0.0.1"),
          std::string("MASTER_PORT=23471"), std::string("ZEROTH_MEETING unset"),
          std::string("ZEROTH_SECRET=of this user, as long"), fmt::format("RANK={}", rank)})
      expected.push_back(fmt::format("[{}] {}", rank, line));
    return expected;
  };
  Words of_first = lines(0, 0, 2, 0);
  for (const std::string& line : lines(1, 1, 2, 0)) of_first.push_back(line);
  const auto zero = first.wait();
  const auto one = second.wait();
  CHECK(zero.status == 0);
  CHECK(one.status == 0);
  CHECK(zero.err.empty());
  CHECK(one.err.empty());
  CHECK(sorted(lines_of(zero.out)) == sorted(of_first));
  CHECK(lines_of(one.out) == lines(2, 0, 1, 1));
}

TEST_CASE("a rank that fails is named by its number among all, and its log too") {
  const Hosts hosts;
  const TempFolder directory;
  Words command = {"--enable_each_rank_log", directory.path()};
  for (const std::string& word : hosts.command("1", {rank_program(), "exit", "7"}))
    command.push_back(word);
  const auto result = run_zeroth(command);
  CHECK(result.status == 7);
  CHECK(result.err.find("rank 2 ended with exit code 7") != std::string::npos);
  REQUIRE(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
  const auto log = std::filesystem::directory_iterator(directory.path())->path();
  CHECK(log.filename().string().ends_with("_rank2.log"));
  CHECK(read_text(log) == "leaving\n");
}

TEST_CASE("a host that is not the one of rank 0 can be told where that is, rank 0's is checked") {
  const Hosts hosts;
  const auto with = [&](const std::string& rank, const std::string& address) {
    return run_zeroth({"-H", hosts.path(), "--no_ssh", "--node_rank", rank, "--master_addr",
                       address, rank_program(), "env", "MASTER_ADDR", "MASTER_PORT"});
  };
  CHECK(with("1", "192.0.2.1").out == "[2] MASTER_ADDR=192.0.2.1\n[2] MASTER_PORT=29500\n");
  const auto refused = with("0", "192.0.2.1");
  CHECK(refused.status == 1);
  CHECK(refused.err ==
        "zeroth: error: --master_addr 192.0.2.1 is not an address of this machine, where rank 0 "
        "runs: this is host 0\n");
}

TEST_CASE("what is missing is named with its flag") {
  const Hosts hosts;
  const auto said = [&](const Words& flags) {
    Words command = {"-H", hosts.path(), "--no_ssh"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.push_back(rank_program());
    const auto result = run_zeroth(command);
    CHECK(result.status == 2);
    return result.err;
  };
  CHECK(said({"--master_addr=127.0.0.1"}).find("--no_ssh needs --node_rank") != std::string::npos);
  CHECK(said({"--node_rank=0"}).find("--no_ssh needs --master_addr") != std::string::npos);
  CHECK(said({"--node_rank=2", "--master_addr=127.0.0.1"}).find("select hosts 0 to 1") !=
        std::string::npos);
}

TEST_CASE("a hostfile with this machine alone runs as without one, on its slots") {
  const TempFolder directory;
  for (const char* host : {"localhost", "127.0.0.1"}) {
    const std::string file = directory.write("hosts", std::string(host) + " slots=2\n");
    const auto result = run_zeroth({"-H", file, rank_program(), "env", "WORLD_SIZE"});
    CHECK(result.status == 0);
    CHECK(sorted(lines_of(result.out)) == Words{"[0] WORLD_SIZE=2", "[1] WORLD_SIZE=2"});
    const auto pair = run_zeroth({"-H", file, rank_program(), "env", "ZEROTH_MEETING"});
    CHECK(pair.out.find("unset") == std::string::npos);
    const auto one =
        run_zeroth({"-H", file, "-i", std::string(host) + ":1", rank_program(), "env", "RANK"});
    CHECK(one.out == "RANK=0\n");
  }
}

}  // namespace zeroth::launcher::by_hand_test
