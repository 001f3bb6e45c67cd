#include "launcher/cluster/launch_multi_node.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include "tests/launcher/multi_host_process.h"

namespace zeroth::launcher::launch_multi_node_test {
namespace {

LaunchedProcess::Result run(const Words& words, const Environment& environment = {}) {
  return MultiHostProcess(words, environment).wait();
}

// Lines behind "[RANK] ", by rank.
std::map<std::string, Words> by_rank(const std::string& text) {
  std::map<std::string, Words> lines;
  for (const std::string& line : lines_of(text)) {
    const size_t end = line.find("] ");
    REQUIRE(end != std::string::npos);
    lines[line.substr(1, end - 1)].push_back(line.substr(end + 2));
  }
  return lines;
}

}  // namespace

TEST_CASE("ranks of two hosts are numbered through, and know their host and one master") {
  const auto result = run(on_two_hosts(
      {}, {"env", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE",
           "MASTER_ADDR", "MASTER_PORT", "ZEROTH_SECRET", "ZEROTH_MEETING"}));
  CHECK(result.err == "");
  CHECK(result.status == 0);
  const auto lines = by_rank(result.out);
  REQUIRE(lines.size() == 4);
  const Words& first = lines.at("0");
  REQUIRE(first.size() == 10);
  CHECK(first[8].starts_with("ZEROTH_SECRET="));
  CHECK(first[8].size() == std::string("ZEROTH_SECRET=").size() + 64);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string local = std::to_string(rank % 2), host = std::to_string(rank / 2);
    CHECK(lines.at(std::to_string(rank)) ==
          Words{"RANK=" + std::to_string(rank), "WORLD_SIZE=4", "LOCAL_RANK=" + local,
                "LOCAL_SIZE=2", "CROSS_RANK=" + host, "CROSS_SIZE=2", "MASTER_ADDR=127.0.0.1",
                first[7], first[8], "ZEROTH_MEETING unset"});
  }
}

TEST_CASE("two names of one machine are told once, also to those who want no notes") {
  const std::string warning =
      "zeroth: warning: hosts 127.0.0.1 and 127.0.0.2 are the same machine: their ranks share its "
      "GPUs and cores\n";
  const auto result =
      run(on_two_hosts({"--one-machine", "yes", "--quiet", "yes"}, {"env", "WORLD_SIZE"}));
  CHECK(result.status == 0);
  CHECK(result.err == warning);
}

TEST_CASE("ranks of a single host meet in memory") {
  const auto result =
      run({"--hosts", "127.0.0.1:2", "--", rank_program(), "env", "ZEROTH_MEETING", "CROSS_SIZE"});
  CHECK(result.status == 0);
  const auto lines = by_rank(result.out);
  CHECK(lines.at("0") == lines.at("1"));
  CHECK(lines.at("0")[0] != "ZEROTH_MEETING unset");
  CHECK(lines.at("0")[1] == "CROSS_SIZE=1");
}

TEST_CASE("arguments, environment and working folder arrive byte for byte") {
  const TempFolder directory;
  const std::string odd = directory.path() / "a 'folder' $HOME `ls` \"x\"";
  std::filesystem::create_directory(odd);
  const Words arguments = {"I am 6' tall",
                           "I am 72\" tall",
                           "\"translate English to Romanian: \"",
                           "I'm going to tell them \"DeepSpeed is the best\"",
                           "",
                           "$HOME `id` $(id) \\ \\n ; & | > *",
                           "two\nlines",
                           "not UTF-8: \xff\xfe\x80"};
  Words words = {"--hosts",  "127.0.0.1:1,127.0.0.2:1",
                 "--env",    "ODD=64(x2) '\"$HOME\xff",
                 "--folder", odd,
                 "--",       "/bin/sh",
                 "-c",       "pwd; printf '%s|' \"$ODD\" \"$@\"; echo",
                 "name"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto result = run(words);
  CHECK(result.err == "");
  std::string all = "64(x2) '\"$HOME\xff|";
  for (const std::string& argument : arguments) all += argument + "|";
  const Words each = {odd, all.substr(0, all.find('\n')), all.substr(all.find('\n') + 1)};
  const auto lines = by_rank(result.out);
  CHECK(lines.at("0") == each);
  CHECK(lines.at("1") == each);
}

TEST_CASE("a rank that fails on one host ends those of the others, and gives the exit code") {
  const auto result = run(on_two_hosts({}, {"only", "2", "exit", "3"}));
  CHECK(result.status == 3);
  CHECK(contains(result.err,
                 "zeroth: rank 2 on host 127.0.0.2 ended with exit code 3; its last lines:\n"
                 "  | leaving\n"));
  CHECK(result.seconds < 30);  // the others would sleep for a minute
}

TEST_CASE("a rank that is killed on another host is named with it, and nothing is left anywhere") {
  MultiHostProcess job(on_two_hosts({}, {"stubborn"}));
  const auto pids = job.wait_for_pids(4);
  const auto agents = agents_of(pids);
  CHECK(agents.size() == 2);
  ::kill(rank_of(pids, "3"), SIGKILL);
  const auto result = job.wait();
  CHECK(result.status == 137);
  CHECK(contains(result.err, "zeroth: rank 3 on host 127.0.0.2 was killed by SIGKILL ("));
  CHECK(contains(result.err, "\nzeroth: ranks that did not end by themselves were killed"));
  CHECK(none_alive(pids));
  CHECK(none_alive({agents.begin(), agents.end()}));
}

TEST_CASE("the kill of an agent loses its host: the job ends with 1, and its ranks with it") {
  MultiHostProcess job(on_two_hosts({}, {"sleep"}));
  const auto pids = job.wait_for_pids(4);
  ::kill(parent_of(rank_of(pids, "2")), SIGKILL);
  const auto result = job.wait();
  CHECK(result.status == 1);
  CHECK(contains(result.err, "zeroth: host 127.0.0.2 is lost: the connection ended"));
  CHECK(contains(result.err, "; rank 2 ran there; it had printed nothing\n"));
  CHECK(eventually([&] { return none_alive(pids); }));
}

TEST_CASE("nothing survives the kill of the launcher") {
  MultiHostProcess job(on_two_hosts({}, {"stubborn"}));
  const auto pids = job.wait_for_pids(4);
  const auto agents = agents_of(pids);
  job.signal(SIGKILL);
  CHECK(job.wait().status == -SIGKILL);
  CHECK(eventually([&] { return none_alive(pids) && none_alive({agents.begin(), agents.end()}); }));
}

TEST_CASE("a host that is silent is lost when its time is over, and ends its ranks when it wakes") {
  MultiHostProcess job(on_two_hosts({"--silence", "4000"}, {"sleep"}));
  const auto pids = job.wait_for_pids(4);
  const pid_t rank = rank_of(pids, "0"), agent = parent_of(rank);
  ::kill(agent, SIGSTOP);
  const pid_t other = rank_of(pids, "3");
  CHECK(eventually([&] { return !is_alive(other); }));
  CHECK(is_alive(rank));
  ::kill(agent, SIGCONT);
  const auto result = job.wait();
  CHECK(result.status == 1);
  CHECK(contains(result.err,
                 "zeroth: host 127.0.0.1 is lost: no heartbeat for 4 s; rank 0 ran there"));
  CHECK(eventually([&] { return none_alive(pids); }));
}

TEST_CASE("signals to the launcher reach the ranks of all hosts, which may finish") {
  MultiHostProcess job(on_two_hosts({}, {"finish", "100"}));
  const auto pids = job.wait_for_pids(4);
  job.signal(SIGTERM);
  const auto result = job.wait();
  CHECK(result.status == 143);
  CHECK(contains(result.err, "zeroth: SIGTERM: ranks have 300 s to finish and save"));
  for (const auto& [rank, lines] : by_rank(result.out)) CHECK(lines == Words{"saved"});
  CHECK(none_alive(pids));
  MultiHostProcess polite(on_two_hosts({}, {"polite"}));
  polite.wait_for_pids(4);
  polite.signal(SIGINT);
  polite.wait_for_words("SIGINT");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  polite.signal(SIGINT);  // polite ones wait for SIGTERM only: now they are killed
  CHECK(polite.wait().status == 130);
}

TEST_CASE("a signal to all agents, as of a batch system, is one to the job") {
  MultiHostProcess job(on_two_hosts({}, {"finish", "600"}));
  const auto pids = job.wait_for_pids(4);
  const auto agents = agents_of(pids);
  for (const pid_t agent : agents) {
    ::kill(agent, SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  const auto result = job.wait();
  CHECK(result.status == 143);
  CHECK(by_rank(result.out).size() == 4);  // all have saved
}

TEST_CASE("lines come whole, whatever the launcher's reader does, and no host is lost by that") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  MultiHostProcess job(on_two_hosts({"--silence", "3000"}, {"lines", "8000"}), {}, ends[1]);
  ::close(ends[1]);
  const auto pids = job.wait_for_pids(4);
  std::this_thread::sleep_for(std::chrono::milliseconds(4000));  // longer than a silent host lives
  std::map<char, int> counts;
  std::string text, rest;
  std::array<char, 65536> buffer;
  for (ssize_t count; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(count));
  ::close(ends[0]);
  CHECK(job.wait().status == 0);
  for (const std::string& line : lines_of(text)) {
    REQUIRE(line.size() > 205);
    REQUIRE(line.substr(4, 201) == std::string(200, static_cast<char>('a' + line[1] - '0')) + " ");
    ++counts[line[1]];
  }
  CHECK(counts == std::map<char, int>{{'0', 8000}, {'1', 8000}, {'2', 8000}, {'3', 8000}});
}

TEST_CASE("lines that nobody has read yet when the last agent has ended are not lost") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  MultiHostProcess job(on_two_hosts({}, {"lines", "1000"}), {}, ends[1]);
  ::close(ends[1]);
  const auto pids = job.wait_for_pids(4);
  CHECK(eventually([&] { return none_alive(pids); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));  // agents too
  std::string text;
  std::array<char, 65536> buffer;
  for (ssize_t count; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(count));
  ::close(ends[0]);
  CHECK(job.wait().status == 0);
  CHECK(lines_of(text).size() == 4 * 1000);
}

TEST_CASE("a host that cannot be reached is named with what its starter said, and no rank starts") {
  MultiHostProcess job(on_two_hosts(
      {"--instead", "1", "--sh", "echo 'Connection refused' >&2; exit 255"}, {"sleep"}));
  const auto result = job.wait();
  CHECK(result.status == 1);
  CHECK(result.out == "");
  CHECK(contains(result.err, "zeroth: 127.0.0.2: Connection refused\n"));
  CHECK(
      contains(result.err,
               "zeroth: error: host 127.0.0.2: sh ended with exit code 255: Connection refused\n"));
}

TEST_CASE("a signal while hosts are still awaited ends the launcher, and no agent is left") {
  MultiHostProcess job(
      on_two_hosts({"--instead", "0", "--sh", "echo waiting >&2; exec sleep 60"}, {"sleep"}));
  job.wait_for_words("waiting");
  job.signal(SIGTERM);
  const auto result = job.wait();
  CHECK(result.status == 143);
  CHECK(contains(result.err, "zeroth: stopped by SIGTERM"));
  CHECK(result.seconds < 30);
}

TEST_CASE("a host whose agent does not come is named when the time is over") {
  const auto result =
      run(on_two_hosts({"--limit", "6000", "--instead", "0", "--sh", "exec sleep 60"}, {"sleep"}));
  CHECK(result.status == 1);
  CHECK(contains(result.err,
                 "zeroth: error: host 127.0.0.1: no answer from an agent there within 6 s\n"));
  CHECK(result.seconds < 30);
}

TEST_CASE("all that hosts lack is told in one error before ranks start") {
  const auto result = run({"--hosts", "127.0.0.1:1,127.0.0.2:1", "--folder", "/no/such/folder",
                           "--", "/no/such/program"});
  CHECK(result.status == 1);
  const std::string directory = "the working folder /no/such/folder: No such file or directory\n";
  CHECK(contains(result.err, "zeroth: error: 2 of 2 hosts cannot run their ranks:\n"));
  for (const std::string host : {"127.0.0.1", "127.0.0.2"}) {
    CHECK(contains(result.err, "  host " + host + ": " + directory));
    CHECK(contains(result.err, "  host " + host + ": /no/such/program"));
  }
}

TEST_CASE("a program that cannot be executed on a host ends the job with a shell's code") {
  const TempFolder directory;
  const std::string broken = directory.write("broken",
                                             "\x7f"
                                             "ELF, but no more");
  std::filesystem::permissions(broken, std::filesystem::perms::owner_all);
  const auto result = run({"--hosts", "127.0.0.1:1,127.0.0.2:1", "--", broken});
  CHECK(result.status == 126);
  CHECK(contains(result.err, "ended with exit code 126 (" + broken + " cannot be executed"));
}

}  // namespace zeroth::launcher::launch_multi_node_test
