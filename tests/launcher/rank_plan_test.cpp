#include "launcher/run/rank_plan.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace zeroth::launcher::rank_plan_test {
namespace {

using Env = std::vector<std::pair<std::string, std::string>>;

PlanRequest cpu_request(int num_ranks) {
  PlanRequest request;
  request.choice.num_ranks = num_ranks;
  request.machine.cores = {0, 1, 2, 3};
  request.master_port = 29500;
  request.launch_time = 1700000000.25;
  return request;
}

LaunchOptions options_of(std::vector<std::string> flags) {
  flags.push_back("prog");
  return parse_command_line(flags);
}

std::string value(const RankSpec& spec, const std::string& name) {
  for (const auto& [key, text] : spec.env)
    if (key == name) return text;
  return "unset";
}

}  // namespace

TEST_CASE("a rank's environment is exactly this") {
  const RankPlan plan = plan_ranks(options_of({}), cpu_request(2));
  REQUIRE(plan.ranks.size() == 2);
  CHECK(plan.notes.empty());
  CHECK(plan.ranks[1].rank == 1);
  CHECK(plan.ranks[1].local_rank == 1);
  CHECK(plan.ranks[1].env == Env{{"RANK", "1"},
                                 {"LOCAL_RANK", "1"},
                                 {"WORLD_SIZE", "2"},
                                 {"LOCAL_SIZE", "2"},
                                 {"CROSS_RANK", "0"},
                                 {"CROSS_SIZE", "1"},
                                 {"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", "29500"},
                                 {"DS_ACCELERATOR", "cpu"},
                                 {"ZEROTH_LAUNCH_TIME", "1700000000.250000"},
                                 {"OMP_NUM_THREADS", "2"}});
}

TEST_CASE("ranks of one host among several are numbered behind those before it") {
  PlanRequest request = cpu_request(2);
  request.accelerator = Accelerator::kCuda;
  request.choice = {{"0", "1"}, 2, false};
  request.node_ranks = {.node_rank = 1, .num_nodes = 3, .first_rank = 4, .world_size = 7};
  request.master_addr = "10.0.0.1";
  request.terminal_columns = 80;
  const RankPlan plan = plan_ranks(options_of({}), request);
  CHECK(plan.ranks[1].rank == 5);
  CHECK(plan.ranks[1].local_rank == 1);
  const std::vector<std::pair<std::string, std::string>> expected = {{"RANK", "5"},
                                                                     {"LOCAL_RANK", "1"},
                                                                     {"WORLD_SIZE", "7"},
                                                                     {"LOCAL_SIZE", "2"},
                                                                     {"CROSS_RANK", "1"},
                                                                     {"CROSS_SIZE", "3"},
                                                                     {"MASTER_ADDR", "10.0.0.1"},
                                                                     {"MASTER_PORT", "29500"}};
  for (const auto& [name, text] : expected) CHECK(value(plan.ranks[1], name) == text);
  CHECK(value(plan.ranks[0], "NCCL_SOCKET_IFNAME") == "unset");
  CHECK(value(plan.ranks[0], "ZEROTH_TTY") == "unset");
  CHECK(plan.ranks[0].cores == std::vector<int>{0, 1});
}

TEST_CASE("--timeout reaches every rank in seconds") {
  const RankPlan plan = plan_ranks(options_of({"--timeout=90"}), cpu_request(2));
  CHECK(value(plan.ranks[0], "ZEROTH_TIMEOUT") == "90");
  CHECK(value(plan.ranks[1], "ZEROTH_TIMEOUT") == "90");
}

TEST_CASE("CPU ranks are bound to their part of the cores") {
  const RankPlan plan = plan_ranks(options_of({}), cpu_request(3));
  CHECK(plan.ranks[0].cores == std::vector<int>{0, 1});
  CHECK(plan.ranks[1].cores == std::vector<int>{2});
  CHECK(plan.ranks[2].cores == std::vector<int>{3});
  CHECK(value(plan.ranks[0], "OMP_NUM_THREADS") == "2");
  CHECK(value(plan.ranks[2], "OMP_NUM_THREADS") == "1");
}

TEST_CASE("binding can be switched off, and a core list narrows it") {
  const RankPlan off = plan_ranks(options_of({"--no_bind_cores_to_rank"}), cpu_request(2));
  CHECK(off.ranks[0].cores.empty());
  CHECK(value(off.ranks[0], "OMP_NUM_THREADS") == "unset");
  const RankPlan list = plan_ranks(options_of({"--bind_core_list=1,3"}), cpu_request(2));
  CHECK(list.ranks[0].cores == std::vector<int>{1});
  CHECK(list.ranks[1].cores == std::vector<int>{3});
  CHECK_THROWS_AS(plan_ranks(options_of({"--bind_core_list=4"}), cpu_request(2)), UsageError);
}

TEST_CASE("a user's OMP_NUM_THREADS stays") {
  PlanRequest request = cpu_request(2);
  request.user_sets_threads = true;
  const RankPlan plan = plan_ranks(options_of({}), request);
  CHECK(value(plan.ranks[0], "OMP_NUM_THREADS") == "unset");
  CHECK(plan.ranks[0].cores == std::vector<int>{0, 1});
}

TEST_CASE("more ranks than cores share them all, with one note and one thread each") {
  const RankPlan plan = plan_ranks(options_of({}), cpu_request(5));
  REQUIRE(plan.notes.size() == 1);
  CHECK(plan.notes[0] == "warning: 5 ranks share 4 cores, so they run in turns");
  for (const RankSpec& spec : plan.ranks) {
    CHECK(spec.cores == std::vector<int>{0, 1, 2, 3});
    CHECK(value(spec, "OMP_NUM_THREADS") == "1");
  }
}

TEST_CASE("all ranks on GPUs see the same list of devices") {
  PlanRequest request = cpu_request(2);
  request.accelerator = Accelerator::kCuda;
  request.choice = {{"4", "GPU-7"}, 2, false};
  const RankPlan plan = plan_ranks(options_of({}), request);
  for (const RankSpec& spec : plan.ranks) {
    CHECK(value(spec, "CUDA_VISIBLE_DEVICES") == "4,GPU-7");
    CHECK(value(spec, "DS_ACCELERATOR") == "cuda");
    CHECK(value(spec, "ZEROTH_SHARE_GPUS") == "unset");
    CHECK(value(spec, "NCCL_SOCKET_IFNAME") == "lo");
  }
  request.user_sets_nccl_socket = true;
  CHECK(value(plan_ranks(options_of({}), request).ranks[0], "NCCL_SOCKET_IFNAME") == "unset");
}

TEST_CASE("every rank is told where the ranks meet") {
  PlanRequest request = cpu_request(2);
  CHECK(value(plan_ranks(options_of({}), request).ranks[1], "ZEROTH_MEETING") == "unset");
  request.bootstrap_ticket = "kernel:1:2:3";
  for (const RankSpec& spec : plan_ranks(options_of({}), request).ranks)
    CHECK(value(spec, "ZEROTH_MEETING") == "kernel:1:2:3");
}

TEST_CASE("ranks on GPUs share the cores as those on the CPU do") {
  PlanRequest request = cpu_request(2);
  request.accelerator = Accelerator::kCuda;
  request.choice = {{"4", "GPU-7"}, 2, false};
  for (const auto& flags : {std::vector<std::string>{}, {"--bind_cores_to_rank"}}) {
    const RankPlan plan = plan_ranks(options_of(flags), request);
    CHECK(plan.ranks[0].cores == std::vector<int>{0, 1});
    CHECK(plan.ranks[1].cores == std::vector<int>{2, 3});
    CHECK(value(plan.ranks[1], "OMP_NUM_THREADS") == "2");
  }
  const RankPlan off = plan_ranks(options_of({"--no_bind_cores_to_rank"}), request);
  CHECK(off.ranks[1].cores.empty());
  CHECK(value(off.ranks[1], "OMP_NUM_THREADS") == "unset");
  request.user_sets_threads = true;
  CHECK(value(plan_ranks(options_of({}), request).ranks[1], "OMP_NUM_THREADS") == "unset");
}

TEST_CASE("a rank on a GPU runs on the cores near to it") {
  PlanRequest request = cpu_request(2);
  request.accelerator = Accelerator::kCuda;
  request.choice = {{"4", "GPU-7"}, 2, false};
  request.machine.numa_cores = {{"0", {0, 1, 2, 3}}, {"4", {1, 3}}, {"GPU-7", {0, 2}}};
  const RankPlan plan = plan_ranks(options_of({}), request);
  CHECK(plan.ranks[0].cores == std::vector<int>{1, 3});
  CHECK(plan.ranks[1].cores == std::vector<int>{0, 2});
  const RankPlan list = plan_ranks(options_of({"--bind_core_list=0,3"}), request);
  CHECK(list.ranks[0].cores == std::vector<int>{3});
  CHECK(list.ranks[1].cores == std::vector<int>{0});
  request.accelerator = Accelerator::kCpu;
  CHECK(plan_ranks(options_of({}), request).ranks[0].cores == std::vector<int>{0, 1});
}

TEST_CASE("ranks that share GPUs are near to theirs in turns") {
  PlanRequest request = cpu_request(4);
  request.accelerator = Accelerator::kCuda;
  request.choice = {{"0", "1"}, 4, true};
  request.machine.numa_cores = {{"0", {2, 3}}, {"1", {0, 1}}};
  const RankPlan plan = plan_ranks(options_of({}), request);
  CHECK(plan.ranks[0].cores == std::vector<int>{2});
  CHECK(plan.ranks[1].cores == std::vector<int>{0});
  CHECK(plan.ranks[2].cores == std::vector<int>{3});
  CHECK(plan.ranks[3].cores == std::vector<int>{1});
}

TEST_CASE("ranks that share GPUs are told so, and the user once") {
  PlanRequest request = cpu_request(3);
  request.accelerator = Accelerator::kCuda;
  request.choice = {{"0"}, 3, true};
  const RankPlan plan = plan_ranks(options_of({}), request);
  CHECK(value(plan.ranks[2], "ZEROTH_SHARE_GPUS") == "1");
  REQUIRE(plan.notes.size() == 1);
  CHECK(plan.notes[0] == "3 ranks share 1 GPU: they exchange data through host memory");
}

TEST_CASE("rank 0 alone learns of the terminal, less the width of its prefix") {
  PlanRequest request = cpu_request(2);
  request.terminal_columns = 80;
  const RankPlan plan = plan_ranks(options_of({}), request);
  CHECK(value(plan.ranks[0], "ZEROTH_TTY") == "1");
  CHECK(value(plan.ranks[0], "ZEROTH_COLUMNS") == "76");
  CHECK(value(plan.ranks[1], "ZEROTH_TTY") == "unset");
  CHECK(line_prefix(12, 16) == "[12] ");
  CHECK(line_prefix(0, 1).empty());
}

TEST_CASE("more than four CPU ranks for each core need --oversubscribe") {
  CHECK(plan_ranks(options_of({}), cpu_request(16)).ranks.size() == 16);
  CHECK(message_of<UsageError>([] { plan_ranks(options_of({}), cpu_request(17)); }) ==
        "17 CPU ranks on 4 cores: more than 4 for each, which would run in turns; --oversubscribe "
        "allows it, --num_gpus sets the number of ranks");
  CHECK(plan_ranks(options_of({"--oversubscribe"}), cpu_request(17)).ranks.size() == 17);
  CHECK(message_of<UsageError>([] {
          plan_ranks(options_of({"--bind_core_list", "1"}), cpu_request(5));
        }).starts_with("5 CPU ranks on 1 core: "));
  PlanRequest on_gpus = cpu_request(17);
  on_gpus.accelerator = Accelerator::kCuda;
  on_gpus.choice.slots = {"0"};
  CHECK(plan_ranks(options_of({"--share-gpus"}), on_gpus).ranks.size() == 17);
}

}  // namespace zeroth::launcher::rank_plan_test
