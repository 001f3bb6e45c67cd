#include "launcher/cluster/launch_multi_node.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "launcher/machine/local_addresses.h"
#include "tests/launcher/multi_host_process.h"

namespace zeroth::launcher::elastic_run_test {
namespace {

LaunchedProcess::Result run(const Words& words) {
  return MultiHostProcess(words).wait();
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

// Those of the processes that note their pids that live, once there are so many.
std::vector<pid_t> wait_for_alive(const LaunchedProcess& job, size_t number) {
  std::vector<pid_t> alive;
  REQUIRE(eventually([&] {
    alive = job.noted_pids();
    std::erase_if(alive, [](pid_t pid) { return !is_alive(pid); });
    return alive.size() == number;
  }));
  return alive;
}

}  // namespace

TEST_CASE("after the loss of a rank all ranks start again, and know the round and its cause") {
  const auto result =
      run(on_two_hosts({"--elastic", "1:2", "--restarts", "3"},
                       {"by-round", "only", "2", "raise", "9", ",", "env", "WORLD_SIZE",
                        "ZEROTH_ROUND", "ZEROTH_ROUND_CAUSE", "ZEROTH_RUN"}));
  CHECK(result.status == 0);
  CHECK(contains(result.err, "zeroth: rank 2 on host 127.0.0.2 was killed by SIGKILL"));
  CHECK(contains(result.err, "zeroth: round 1 on 2 hosts with 4 ranks (1 of 3 restarts used)"));
  CHECK(count(result.out, "WORLD_SIZE=4\n") == 4);
  CHECK(count(result.out, "ZEROTH_ROUND=1\n") == 4);
  const size_t run_at = result.out.find("ZEROTH_RUN=");
  REQUIRE(run_at != std::string::npos);
  CHECK(count(result.out, result.out.substr(run_at, 11 + 16) + "\n") == 4);
  CHECK(count(result.out, "ZEROTH_ROUND_CAUSE=rank 2 on host 127.0.0.2 was killed by SIGKILL") ==
        4);
}

TEST_CASE("who wants no notes hears of what failed, not of rounds") {
  const auto result = run(on_two_hosts(
      {"--elastic", "1:2", "--restarts", "3", "--one-machine", "yes", "--quiet", "yes"},
      {"by-round", "only", "2", "raise", "9", ",", "env", "WORLD_SIZE"}));
  CHECK(result.status == 0);
  CHECK(count(result.out, "WORLD_SIZE=4\n") == 4);
  CHECK(contains(result.err, "zeroth: rank 2 on host 127.0.0.2 was killed by SIGKILL"));
  CHECK(count(result.err, "are the same machine") == 1);
  CHECK_FALSE(contains(result.err, "zeroth: round 1"));
}

TEST_CASE("the run goes on without a host that is lost, and with it once it is back") {
  MultiHostProcess job(on_two_hosts(
      {"--elastic", "1:2", "--restarts", "1", "--try-again", "6000"},
      {"by-round", "sleep", ",", "finish", "0", ",", "env", "WORLD_SIZE", "ZEROTH_ROUND_CAUSE"}));
  const auto pids = job.wait_for_pids(4);
  ::kill(parent_of(rank_of(pids, "2")), SIGKILL);
  job.wait_for_words("zeroth: round 1 on 1 host with 2 ranks (1 of 1 restarts used)");
  const auto result = job.wait();
  CHECK(result.status == 0);
  CHECK(contains(result.err, "zeroth: host 127.0.0.2 is lost: the connection ended"));
  CHECK(contains(result.err, "zeroth: host 127.0.0.2 has joined: the ranks save and restart"));
  CHECK(contains(result.err, "zeroth: round 2 on 2 hosts with 4 ranks (1 of 1 restarts used)"));
  CHECK(count(result.out, "saved\n") == 2);
  CHECK(count(result.out, "WORLD_SIZE=4\n") == 4);
  CHECK(count(result.out, "ZEROTH_ROUND_CAUSE=host 127.0.0.2 has joined\n") == 4);
  CHECK(none_alive(pids));
}

TEST_CASE("without as many hosts as there must be the run ends with the code to be requeued") {
  MultiHostProcess job(
      on_two_hosts({"--elastic", "2:2", "--restarts", "5", "--wait", "6000", "--try-again", "300",
                    "--instead-from", "2", "--sh", "echo no route >&2; exit 255"},
                   {"sleep"}));
  const auto pids = job.wait_for_pids(4);
  ::kill(parent_of(rank_of(pids, "0")), SIGKILL);
  const auto result = job.wait();
  CHECK(result.status == 75);
  CHECK(contains(result.err,
                 "zeroth: only 1 host (127.0.0.2) available after 6 s, at least 2 needed"));
  CHECK(count(result.err, "127.0.0.1 is excluded: sh ended with exit code 255: no route") == 1);
  CHECK(none_alive(pids));
}

TEST_CASE("elastic_spares: ranks beyond the largest multiple of a copy's ranks wait as spares") {
  MultiHostProcess job({"--hosts",
                        "127.0.0.1:3,127.0.0.2:3,127.0.0.3:1",
                        "--elastic",
                        "1:3",
                        "--model-parallel",
                        "2:2",
                        "--restarts",
                        "1",
                        "--wait",
                        "6000",
                        "--try-again",
                        "60000",
                        "--",
                        rank_program(),
                        "by-round",
                        "sleep",
                        ",",
                        "env",
                        "WORLD_SIZE",
                        "LOCAL_SIZE",
                        "CROSS_SIZE"});
  const auto pids = job.wait_for_pids(4);
  job.wait_for_words("zeroth: 3 of 7 ranks wait as spares: ranks must be a multiple of 4");
  ::kill(parent_of(rank_of(pids, "3")), SIGKILL);
  const auto result = job.wait();
  CHECK(result.status == 0);
  CHECK(contains(result.err, "zeroth: round 1 on 2 hosts with 4 ranks (1 of 1 restarts used)"));
  CHECK_FALSE(contains(result.err, "4 ranks wait"));  // all four of the last two hosts are used
  CHECK(count(result.out, "WORLD_SIZE=4\n") == 4);
  CHECK(count(result.out, "LOCAL_SIZE=3\n") == 3);
  CHECK(none_alive(pids));
}

TEST_CASE("elastic_spares: hosts that join are taken in once they make up another copy") {
  const TempFolder directory;
  const std::string file = directory.write("hosts", "127.0.0.1:2,127.0.0.2:1");
  MultiHostProcess job({"--hosts", "127.0.0.1:2,127.0.0.2:1", "--hosts-file", file, "--elastic",
                        "1:3", "--model-parallel", "2:1", "--restarts", "0", "--", rank_program(),
                        "by-round", "finish", "0", ",", "env", "WORLD_SIZE"});
  job.wait_for_pids(2);
  job.wait_for_words("zeroth: 1 of 3 ranks waits as a spare");
  std::this_thread::sleep_for(std::chrono::seconds(4));  // it is stable, and would gain nothing
  std::filesystem::rename(directory.write("more", "127.0.0.1:2,127.0.0.2:1,127.0.0.3:1"), file);
  const auto result = job.wait();
  CHECK(result.status == 0);
  CHECK(count(result.err, "joined: the ranks save") == 1);
  CHECK(contains(result.err, "zeroth: round 1 on 3 hosts with 4 ranks (0 of 0 restarts used)"));
  CHECK(count(result.out, "WORLD_SIZE=4\n") == 4);
}

TEST_CASE("elastic_spares: with less than one copy of the model the run is to be requeued") {
  MultiHostProcess job(on_two_hosts({"--elastic", "1:2", "--model-parallel", "4:1", "--restarts",
                                     "5", "--wait", "6000", "--try-again", "60000"},
                                    {"sleep"}));
  const auto pids = job.wait_for_pids(4);
  ::kill(parent_of(rank_of(pids, "3")), SIGKILL);
  const auto result = job.wait();
  CHECK(result.status == 75);
  CHECK(contains(result.err,
                 "zeroth: only 2 ranks (127.0.0.1) available after 6 s, at least 4 needed (4 "
                 "pipeline stages x 1 tensor-parallel rank)"));
  CHECK(none_alive(pids));
}

TEST_CASE("elastic_spares: a run that no host could complete does not start") {
  const auto result = run(on_two_hosts(
      {"--elastic", "1:2", "--model-parallel", "4:2", "--restarts", "5", "--wait", "60000"},
      {"sleep"}));
  CHECK(result.status == 1);
  CHECK(
      contains(result.err, "zeroth: error: 4 ranks on 2 hosts, but one copy of the model needs 8"));
}

TEST_CASE("a run that always fails is not started again for ever") {
  const auto result =
      run(on_two_hosts({"--elastic", "1:2", "--restarts", "2"}, {"only", "1", "exit", "3"}));
  CHECK(result.status == 3);
  CHECK(count(result.out, "[1] leaving\n") == 3);
  CHECK(contains(result.err, "the run is not restarted: --max-restarts 2 are used up"));
}

TEST_CASE("a command line that is wrong is not tried again") {
  const auto result = run(on_two_hosts({"--elastic", "1:2", "--restarts", "2"}, {"exit", "2"}));
  CHECK(result.status == 2);
  CHECK_FALSE(contains(result.err, "round 1"));
  CHECK(contains(result.err, "the run is not restarted: exit code 2 is a usage error"));
}

TEST_CASE("SIGTERM ends an elastic run with the code to be requeued, others with their own") {
  for (const auto& [signal, status] :
       {std::pair{SIGTERM, 75}, std::pair{SIGINT, 130}, std::pair{SIGHUP, 129}}) {
    MultiHostProcess job(on_two_hosts({"--elastic", "1:2", "--restarts", "2"}, {"finish", "100"}));
    const auto pids = job.wait_for_pids(4);
    job.signal(signal);
    const auto result = job.wait();
    CHECK(result.status == status);
    CHECK(count(result.out, "saved\n") == 4);
    CHECK(none_alive(pids));
  }
}

TEST_CASE("sigterm_of_one_host: a host that alone is told to go leaves, and the run goes on") {
  for (const auto& [signal, name] : {std::pair{SIGTERM, "SIGTERM"}, std::pair{SIGHUP, "SIGHUP"}}) {
    MultiHostProcess job(
        on_two_hosts({"--elastic", "1:2", "--restarts", "0", "--try-again", "600000"},
                     {"by-round", "finish", "0", ",", "env", "WORLD_SIZE", "ZEROTH_ROUND_CAUSE"}));
    const auto pids = job.wait_for_pids(4);
    ::kill(parent_of(rank_of(pids, "2")), signal);
    const auto result = job.wait();
    const std::string sent = fmt::format("host 127.0.0.2 was sent {}", name);
    CHECK(result.status == 0);
    CHECK(contains(result.err, "zeroth: " + sent + ", no other host was: the ranks save"));
    CHECK(contains(result.err, "zeroth: round 1 on 1 host with 2 ranks (0 of 0 restarts used)"));
    CHECK(count(result.out, "saved\n") == 4);
    CHECK(count(result.out, "WORLD_SIZE=2\n") == 2);
    CHECK(count(result.out, "ZEROTH_ROUND_CAUSE=" + sent + "\n") == 2);
    CHECK(none_alive(pids));
  }
}

TEST_CASE("sigterm_of_one_host: all hosts, or one that is needed, mean the run") {
  for (const char* const hosts : {"1:2", "2:2"}) {
    MultiHostProcess job(on_two_hosts({"--elastic", hosts, "--restarts", "2"}, {"finish", "0"}));
    const auto pids = job.wait_for_pids(4);
    ::kill(parent_of(rank_of(pids, "2")), SIGTERM);
    if (hosts == std::string("1:2")) ::kill(parent_of(rank_of(pids, "0")), SIGTERM);
    const auto result = job.wait();
    CHECK(result.status == 75);
    CHECK(count(result.out, "saved\n") == 4);
    CHECK_FALSE(contains(result.err, "round 1"));
    CHECK(none_alive(pids));
  }
}

TEST_CASE("a host that is stopped is expelled; when it wakes it ends, and the run has gone on") {
  MultiHostProcess job(on_two_hosts(
      {"--elastic", "1:2", "--restarts", "2", "--silence", "4000", "--try-again", "600000"},
      {"by-round", "sleep", ",", "finish", "0"}));
  const auto pids = job.wait_for_pids(4);
  const pid_t asleep = rank_of(pids, "0"), agent = parent_of(asleep);
  for (const pid_t pid : {asleep, agent}) ::kill(pid, SIGSTOP);
  job.wait_for_words("round 1 on 1 host with 2 ranks");
  const auto next = wait_for_alive(job, 4);  // two of them are those that sleep
  const pid_t first = rank_of(next, "0");
  CHECK(is_alive(asleep));
  for (const pid_t pid : {agent, asleep}) ::kill(pid, SIGCONT);
  CHECK(eventually([&] { return !is_alive(asleep) && !is_alive(agent); }));
  CHECK((is_alive(first) || first == asleep));
  job.signal(SIGINT);
  CHECK(job.wait().status == 130);
}

TEST_CASE("hosts that are new in the hostfile are taken in, and not more than the run may have") {
  const TempFolder directory;
  const std::string file = directory.write("hosts", "127.0.0.1:1");
  MultiHostProcess job({"--hosts", "127.0.0.1:1", "--hosts-file", file, "--elastic", "1:2",
                        "--restarts", "0", "--", rank_program(), "by-round", "finish", "0", ",",
                        "env", "WORLD_SIZE"});
  job.wait_for_pids(1);
  // At once, as it may be read at any time.
  std::filesystem::rename(directory.write("more", "127.0.0.1:1,127.0.0.2:1,127.0.0.3:1"), file);
  const auto result = job.wait();
  CHECK(result.status == 0);
  CHECK(contains(result.err, " has joined: the ranks save"));
  CHECK(contains(result.err, "round 1 on 2 hosts with 2 ranks (0 of 0 restarts used)"));
  CHECK(count(result.out, "WORLD_SIZE=2\n") == 2);
}

TEST_CASE("a host that knows the secret joins, one that does not is refused") {
  const std::string port = std::to_string(resolve_master_port(std::nullopt));
  const Environment secret = {{"ZEROTH_SECRET", "0123456789abcdef of a test"}};
  MultiHostProcess job(
      {"--hosts", "127.0.0.1:1", "--elastic", "2:3", "--restarts", "0", "--join-port", port, "--",
       rank_program(), "env", "WORLD_SIZE", "LOCAL_SIZE"},
      secret);
  const auto at = "127.0.0.1:" + port;
  LaunchedProcess stranger({"--join", at, "--num_gpus", "2", "--elastic-wait", "0"},
                           {{"ZEROTH_SECRET", "another secret of a test"}});
  const auto refused = stranger.wait();
  CHECK(refused.status == 1);
  LaunchedProcess joiner({"--join", at, "--num_gpus", "2"}, secret);
  const auto result = job.wait();
  CHECK(result.status == 0);
  CHECK(count(result.out, "WORLD_SIZE=3\n") == 3);
  CHECK(count(result.out, "LOCAL_SIZE=2\n") == 2);
  CHECK(joiner.wait().status == 0);
}

TEST_CASE("the loss of the launcher ends a host that has joined with the code to be requeued") {
  const std::string port = std::to_string(resolve_master_port(std::nullopt));
  const Environment secret = {{"ZEROTH_SECRET", "0123456789abcdef of a test"}};
  MultiHostProcess job({"--hosts", "127.0.0.1:1", "--elastic", "2:2", "--restarts", "0",
                        "--join-port", port, "--", rank_program(), "sleep"},
                       secret);
  LaunchedProcess joiner({"--join", "127.0.0.1:" + port, "--num_gpus", "1"}, secret);
  const auto pids = job.wait_for_pids(2);
  job.signal(SIGKILL);
  CHECK(joiner.wait().status == 75);
  CHECK(eventually([&] { return none_alive(pids); }));
}

TEST_CASE("where all hosts have answered and too few can run their ranks, none starts") {
  const auto result = run({"--hosts", "127.0.0.1:1,127.0.0.2:1", "--elastic", "1:2", "--folder",
                           "/no/such/folder", "--", rank_program(), "sleep"});
  CHECK(result.status == 1);
  CHECK(contains(result.err, "zeroth: error: 2 of 2 hosts cannot run their ranks:\n"));
}

}  // namespace zeroth::launcher::elastic_run_test
