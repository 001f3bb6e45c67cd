#include "launcher/cluster/hosts_launch.h"

#include <doctest/doctest.h>

#include <filesystem>

namespace zeroth::launcher {
namespace {

LaunchOptions options_of_a_user() {
  LaunchOptions options;
  options.command = {"finetune", "--text", "I am 72\" tall"};
  options.master_port = 29511;
  options.timeout_seconds = 40;
  options.bind_core_list = "0-3";
  options.share_gpus = true;
  options.hosts.ssh_port = 2222;
  return options;
}

ClusterPlan plan_of_two() {
  return {.hosts = {{"one", {0, 1}}, {"two", {3}}},
          .backend = &find_backend("pdsh"),
          .launcher_args = {"-l", "me"},
          .zeroth = "/opt/zeroth",
          .environment = {{"NCCL_DEBUG", "INFO"}}};
}

}  // namespace

TEST_CASE("what flags and hostfile ask for reaches each host's agent") {
  const HostsLaunch launch = hosts_launch(options_of_a_user(), plan_of_two());
  const RemoteJob& job = launch.gathering.job;
  CHECK(launch.gathering.hosts.size() == 2);
  CHECK(launch.gathering.hosts[1].slots == std::vector<int>{3});
  CHECK(job.command == options_of_a_user().command);
  CHECK(job.folder == std::filesystem::current_path().string());
  CHECK(job.env == Variables{{"NCCL_DEBUG", "INFO"}});
  CHECK(job.share_gpus);
  CHECK_FALSE(job.bind_cores.has_value());
  CHECK(job.bind_core_list == "0-3");
  CHECK(job.timeout_seconds == 40);
  CHECK(job.master_port == 29511);
  CHECK(launch.master_addr.empty());
  LaunchOptions options = options_of_a_user();
  options.master_addr = "10.0.0.7";
  CHECK(hosts_launch(options, plan_of_two()).master_addr == "10.0.0.7");
}

TEST_CASE("agents are started by the plan's backend, each run's files under names of its own") {
  const HostsLaunch launch = hosts_launch(options_of_a_user(), plan_of_two());
  const AgentStart one = launch.gathering.agents("10.0.0.1:4000", "0123456789abcdef"),
                   other = launch.gathering.agents("10.0.0.1:4000", "0123456789abcdef");
  REQUIRE(one.before.size() == 2);
  CHECK(one.before[0].input == "0123456789abcdef\n");
  REQUIRE(one.agents.size() == 1);
  CHECK(one.agents[0].argv[0] == "pdsh");
  CHECK(one.agents[0].argv.back().find("--launcher 10.0.0.1:4000") != std::string::npos);
  CHECK(one.agents[0].argv.back() != other.agents[0].argv.back());
  for (const std::string& word : one.agents[0].argv)
    CHECK(word.find("0123456789abcdef") == std::string::npos);
}

}  // namespace zeroth::launcher
