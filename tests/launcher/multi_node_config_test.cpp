#include "launcher/cluster/launch_multi_node.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "launcher/cluster/cluster_plan.h"

namespace zeroth::launcher::multi_node_config_test {
namespace {

constexpr const char* kSecret = "0123456789abcdef";

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
  return {.agents = {.hosts = {{"one", {0, 1}}, {"two", {3}}},
                     .zeroth = "/opt/zeroth",
                     .launcher_args = {"-l", "me"}},
          .backend = &find_backend("pdsh"),
          .environment = {{"NCCL_DEBUG", "INFO"}}};
}

}  // namespace

TEST_CASE("what flags and hostfile ask for reaches each host's agent") {
  const MultiNodeConfig config = make_multi_node_config(options_of_a_user(), plan_of_two());
  const RemoteJob& job = config.agents.job;
  CHECK(config.hosts.size() == 2);
  CHECK(config.hosts[1].slots == std::vector<int>{3});
  CHECK(job.command == options_of_a_user().command);
  CHECK(job.working_directory == std::filesystem::current_path().string());
  CHECK(job.env == Variables{{"NCCL_DEBUG", "INFO"}});
  CHECK(job.share_gpus);
  CHECK_FALSE(job.bind_cores.has_value());
  CHECK(job.bind_core_list == "0-3");
  CHECK(job.timeout_seconds == 40);
  CHECK(job.master_port == 29511);
  CHECK(config.master_addr.empty());
  LaunchOptions options = options_of_a_user();
  options.master_addr = "10.0.0.7";
  CHECK(make_multi_node_config(options, plan_of_two()).master_addr == "10.0.0.7");
}

TEST_CASE("agents are started by the plan's backend, each run's files under names of its own") {
  const MultiNodeConfig config = make_multi_node_config(options_of_a_user(), plan_of_two());
  const AgentCommands one = config.agents.make_commands(config.hosts, "10.0.0.1:4000", kSecret),
                      other = config.agents.make_commands(config.hosts, "10.0.0.1:4000", kSecret);
  REQUIRE(one.setup.size() == 2);
  CHECK(one.setup[0].input == std::string(kSecret) + "\n");
  REQUIRE(one.agents.size() == 1);
  CHECK(one.agents[0].argv[0] == "pdsh");
  CHECK(one.agents[0].argv.back().find("--launcher 10.0.0.1:4000") != std::string::npos);
  CHECK(one.agents[0].argv.back() != other.agents[0].argv.back());
  for (const std::string& word : one.agents[0].argv) CHECK(word.find(kSecret) == std::string::npos);
}

TEST_CASE("an elastic run's rounds are as the flags ask for, and its hosts have an ssh each") {
  LaunchOptions options = options_of_a_user();
  options.elastic = {.hosts = NodeRange{1, 4}, .max_restarts = 7, .wait_seconds = 30};
  ClusterPlan plan = plan_of_two();
  plan.backend = &find_backend("ssh");
  plan.elastic = options.elastic.hosts;
  const MultiNodeConfig config = make_multi_node_config(options, plan);
  REQUIRE(config.elastic);
  CHECK(config.elastic->hosts == NodeRange{1, 4});
  CHECK(config.elastic->max_restarts == 7);
  CHECK(config.elastic->join_timeout == std::chrono::seconds(30));
  CHECK(config.agents.job.requeue_code == 75);
  CHECK_FALSE(config.agents.join_port);
  CHECK(config.agents.make_commands({{"one", {0}}, {"three", {0}}}, "10.0.0.1:1", kSecret)
            .agents[1]
            .hosts == std::vector<int>{1});
  options.elastic.requeue_code = 99;
  CHECK(make_multi_node_config(options, plan).agents.job.requeue_code == 99);
}

}  // namespace zeroth::launcher::multi_node_config_test
