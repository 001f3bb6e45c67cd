#include "launcher/cluster/cluster_plan.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace zeroth::launcher::cluster_plan_test {
namespace {

using Words = std::vector<std::string>;

const std::vector<HostEntry> kThree = {{"worker-0", 2, 1}, {"worker-1", 1, 2}, {"worker-2", 3, 3}};

Placement place(Words flags, const std::vector<HostEntry>& hostfile = kThree, bool has_pdsh = true,
                const Variables& variables = {}) {
  flags.push_back("prog");
  return place_ranks(parse_command_line(flags),
                     {.hostfile = hostfile,
                      .is_this_machine = [](const std::string& host) { return host == "here"; },
                      .has_pdsh = has_pdsh,
                      .variables = variables});
}

std::string error_of(const Words& flags, const std::vector<HostEntry>& hostfile = kThree) {
  return message_of<UsageError>([&] { place(flags, hostfile); });
}

}  // namespace

TEST_CASE("hosts of a hostfile get agents") {
  const Placement placement = place({"--launcher_args=-v 'a b'", "--exclude", "worker-1"});
  REQUIRE(placement.cluster);
  CHECK(placement.cluster->agents.hosts ==
        std::vector<HostSlots>{{"worker-0", {0, 1}}, {"worker-2", {0, 1, 2}}});
  CHECK(placement.cluster->backend == &find_backend("pdsh"));
  CHECK(placement.cluster->agents.launcher_args == Words{"-v", "a b"});
  CHECK(placement.notes.empty());
  CHECK(error_of({"--launcher=mvapich"}).starts_with("--launcher mvapich is not supported: "));
  CHECK(
      error_of({"--launcher_args='"}).starts_with("--launcher_args ': unterminated single quote"));
}

TEST_CASE("without pdsh ssh is the default, and that is said") {
  const Placement placement = place({}, kThree, false);
  CHECK(placement.cluster->backend == &find_backend("ssh"));
  CHECK(placement.notes ==
        Words{"pdsh is not installed: hosts are reached by ssh (--launcher ssh)"});
  CHECK(place({"--launcher=ssh"}, kThree, false).notes.empty());
  CHECK(place({"--launcher=pdsh"}, kThree, false).cluster->backend == &find_backend("pdsh"));
}

TEST_CASE("a single host is reached by an agent, unless it is this machine") {
  const std::vector<HostEntry> there = {{"there", 2, 1}};
  const std::vector<HostEntry> here = {{"here", 2, 1}};
  CHECK(place({}, there).cluster);
  CHECK(place({"--force_multi"}, here).cluster);
  const Placement local = place({}, here);
  CHECK_FALSE(local.cluster);
  CHECK(local.slots == std::vector<int>{0, 1});
  CHECK(local.node_ranks.num_nodes == 1);
  CHECK(local.node_ranks.world_size == 2);
  CHECK(local.notes.empty());
  CHECK(place({"--include", "here:1"}, here).slots == std::vector<int>{1});
  CHECK(place({"--include", "here"}, {{"here", 1, 1}, {"there", 1, 2}}).slots ==
        std::vector<int>{0});
  CHECK(error_of({"--node_rank=1"}, here).starts_with("--node_rank 1: "));
}

TEST_CASE("without a hostfile this machine is alone, and flags about hosts are noted") {
  const Placement placement = place({"--num_nodes=1", "--node_rank=0", "--no_ssh", "--no_ssh_check",
                                     "--launcher=slurm", "--launcher_args=-v", "--ssh_port=22"},
                                    {});
  CHECK_FALSE(placement.cluster);
  CHECK(placement.slots.empty());
  CHECK(placement.notes == Words{"--num_nodes 1 has no effect: this machine is the only host",
                                 "--no_ssh has no effect: one machine needs no ssh",
                                 "--node_rank 0 has no effect: this machine is the only host",
                                 "--ssh_port has no effect: one machine needs no ssh",
                                 "--launcher has no effect: one machine needs no ssh",
                                 "--launcher_args has no effect: one machine needs no ssh",
                                 "--no_ssh_check has no effect: one machine needs no ssh"});
  CHECK(place({}, {}).notes.empty());
  for (const Words& flags : {Words{"--num_nodes=2"}, Words{"--node_rank=1"}, {"--force_multi"}})
    CHECK(error_of(flags, {}).find("without a hostfile this machine is the only host") !=
          std::string::npos);
  CHECK(error_of({"--launcher=rsh"}, {}).starts_with("--launcher rsh: must be one of"));
}

TEST_CASE("with --no_ssh this machine has the ranks of its host among all") {
  const auto part = [](const char* rank) {
    return place({"--no_ssh", "--master_addr=10.0.0.1", "--node_rank", rank});
  };
  CHECK_FALSE(part("1").cluster);
  CHECK(part("0").node_ranks.first_rank == 0);
  CHECK(part("1").node_ranks.first_rank == 2);
  CHECK(part("1").node_ranks.node_rank == 1);
  CHECK(part("2").node_ranks.first_rank == 3);
  CHECK(part("2").node_ranks.num_nodes == 3);
  CHECK(part("2").node_ranks.world_size == 6);
  CHECK(part("2").slots == std::vector<int>{0, 1, 2});
  CHECK(place({"--no_ssh", "--master_addr=a", "--node_rank=0", "--ssh_port=22"}).notes ==
        Words{"--ssh_port has no effect: with --no_ssh no host is contacted"});
}

TEST_CASE("--no_ssh needs to know which host this is, and where rank 0 is") {
  CHECK(error_of({"--no_ssh", "--master_addr=a"}) ==
        "--no_ssh needs --node_rank: it says which of the 3 hosts of the hostfile this machine is "
        "(0 to 2, in the order of the file)");
  CHECK(error_of({"--no_ssh", "--node_rank=0"}) ==
        "--no_ssh needs --master_addr: the address of host 0, worker-0, at which the other hosts "
        "reach rank 0");
  CHECK(error_of({"--no_ssh", "--node_rank=3", "--master_addr=a"}) ==
        "--node_rank 3: the hostfile and the flags select hosts 0 to 2");
  CHECK(error_of({"--no_ssh", "--node_rank=-1"}) == "--node_rank -1: hosts are counted from 0");
  CHECK(error_of({"--no_ssh", "--force_multi"}) ==
        "--no_ssh and --force_multi contradict each other");
}

TEST_CASE("without a hostfile hosts by hand have equally many ranks") {
  const Placement placement =
      place({"--no_ssh", "--num_nodes=3", "--node_rank=2", "--master_addr=a"}, {});
  CHECK_FALSE(placement.cluster);
  CHECK(placement.slots.empty());
  CHECK(placement.scheduler.empty());
  const NodeRanks part = with_num_ranks(placement.node_ranks, 4);
  CHECK(part.node_rank == 2);
  CHECK(part.num_nodes == 3);
  CHECK(part.first_rank == 8);
  CHECK(part.world_size == 12);
  CHECK(with_num_ranks(part, 5).world_size == 12);
  CHECK(with_num_ranks({}, 4).world_size == 4);
  CHECK_THROWS_AS(with_num_ranks({.node_rank = 0, .num_nodes = 65'536}, 65'536), UsageError);
  CHECK(error_of({"--no_ssh", "--num_nodes=3", "--master_addr=a"}, {}) ==
        "--no_ssh needs --node_rank: it says which of the 3 hosts this machine is (0 to 2)");
  CHECK(error_of({"--no_ssh", "--num_nodes=3", "--node_rank=3", "--master_addr=a"}, {}) ==
        "--node_rank 3: --num_nodes 3 selects hosts 0 to 2");
  CHECK(error_of({"--no_ssh", "--num_nodes=3", "--node_rank=0"}, {})
            .starts_with("--no_ssh needs --master_addr: "));
}

TEST_CASE("a zeroth that was started on each node has the ranks of its node") {
  const Variables pod = {{"PET_NNODES", "3"},
                         {"PET_NODE_RANK", "1"},
                         {"PET_MASTER_ADDR", "m"},
                         {"PET_MASTER_PORT", "4000"},
                         {"PET_NPROC_PER_NODE", "2"}};
  const auto in_pod = [&](const Words& flags, const std::vector<HostEntry>& hostfile,
                          const Variables& more = {}) {
    return place(flags, hostfile, true, merge_variables(pod, more));
  };
  const auto error_in_pod = [&](const Words& flags, const std::vector<HostEntry>& hostfile,
                                const Variables& more = {}) {
    return message_of<UsageError>([&] { in_pod(flags, hostfile, more); });
  };
  const Placement alike = in_pod({"--num_nodes=3", "--ssh_port=22"}, {});
  CHECK(alike.scheduler == "Kubeflow");
  CHECK(alike.master_addr == "m");
  CHECK(alike.master_port == 4000);
  CHECK(alike.num_ranks == 2);
  CHECK(with_num_ranks(alike.node_ranks, 2).first_rank == 2);
  CHECK(with_num_ranks(alike.node_ranks, 2).world_size == 6);
  CHECK(alike.notes == Words{"--ssh_port has no effect: Kubeflow has started zeroth on each node"});
  CHECK(in_pod({"--node_rank=2"}, {}).node_ranks.node_rank == 2);
  const Placement unequal = in_pod({}, kThree);
  CHECK_FALSE(unequal.cluster);
  CHECK(unequal.slots == std::vector<int>{0});
  CHECK(unequal.node_ranks.first_rank == 2);
  CHECK(unequal.node_ranks.world_size == 6);
  CHECK(in_pod({"--no_ssh"}, {}).scheduler.empty());
  CHECK(in_pod({}, {}, {{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}}).num_ranks == 2);
  CHECK(error_in_pod({"--num_nodes=2"}, {}) ==
        "--num_nodes 2: Kubeflow has started zeroth on 3 nodes");
  CHECK(error_in_pod({"--num_nodes=2"}, kThree)
            .starts_with("Kubeflow has started zeroth on 3 nodes, but the hostfile and the flags "
                         "select 2 hosts: "));
  CHECK(error_in_pod({"--node_rank=3"}, {}) ==
        "--node_rank 3: Kubeflow has started zeroth on hosts 0 to 2");
  CHECK(error_in_pod({"--force_multi"}, {}).starts_with("--force_multi: Kubeflow has started"));
  CHECK(error_in_pod({}, {}, {{"PET_MASTER_ADDR", ""}})
            .find("--master_addr, or environment variable MASTER_ADDR") != std::string::npos);
  CHECK(in_pod({"--master_addr=a"}, {}, {{"PET_MASTER_ADDR", ""}}).node_ranks.num_nodes == 3);
}

TEST_CASE("flags that mean nothing to agents are noted") {
  CHECK(
      place({"--node_rank=1", "--no_ssh_check"}).notes ==
      Words{"--node_rank 1 has no effect: without --no_ssh the launcher assigns node ranks",
            "--no_ssh_check has no effect: hosts are not checked before their agents are started"});
}

TEST_CASE("the flags reach the commands of agents") {
  const Placement placement = place({"--launcher=ssh", "--ssh_port=2222", "--launcher_args=-v"});
  const AgentLaunchRequest& request = placement.cluster->agents;
  CHECK(request.ssh_port == 2222);
  CHECK(request.launcher_args == Words{"-v"});
  CHECK(request.hosts.size() == 3);
}

TEST_CASE("the hosts of an elastic run are reached by an ssh each") {
  const Placement placement = place({"--elastic=2:4"});
  REQUIRE(placement.cluster);
  CHECK(placement.cluster->backend == &find_backend("ssh"));
  CHECK(placement.cluster->elastic == NodeRange{2, 4});
  CHECK(placement.cluster->watches_hostfile);
  CHECK(place({"--elastic_training"}).cluster->elastic == NodeRange{1, 3});
  CHECK(place({"--elastic=1:2"}, {{"here", 2, 1}}).cluster);
  for (const char* backend : {"pdsh", "openmpi", "mpich", "impi", "slurm"}) {
    CAPTURE(backend);
    CHECK(error_of({"--elastic=1:2", "--launcher", backend})
              .starts_with("--elastic needs a separate ssh for each host"));
  }
  CHECK(error_of({"--elastic_training", "--min_elastic_nodes=4"})
            .starts_with("--min_elastic_nodes 4: there are 3 hosts"));
}

TEST_CASE("restarts alone keep the hosts, and on one machine need no agent") {
  const Placement placement = place({"--max-restarts=2"});
  CHECK(placement.cluster->elastic == NodeRange{3, 3});
  CHECK(placement.cluster->backend == &find_backend("ssh"));
  CHECK_FALSE(placement.cluster->watches_hostfile);
  CHECK_FALSE(place({"--max-restarts=2"}, {}).cluster);
  CHECK_FALSE(place({"--max-restarts=2"}, {{"here", 2, 1}}).cluster);
  CHECK(error_of({"--no_ssh", "--node_rank=1", "--master_addr=a", "--max-restarts=2"})
            .starts_with("--max-restarts 2: zeroth runs on each of 3 nodes"));
}

TEST_CASE("of nodes that others have started the first is the launcher, and the others join it") {
  const auto node = [](const std::string& number, const Words& flags) {
    return place(flags, {}, true,
                 {{"PET_NNODES", "3"}, {"PET_NODE_RANK", number}, {"PET_MASTER_ADDR", "m"}});
  };
  const Placement first = node("0", {"--elastic=2:3"});
  REQUIRE(first.cluster);
  CHECK(first.cluster->backend == &local_backend());
  CHECK(first.cluster->agents.hosts.size() == 1);
  CHECK(first.cluster->join_port == kDefaultMasterPort);
  CHECK(first.cluster->join_address == "m");
  CHECK(first.cluster->num_joiners == 2);
  CHECK(first.join.empty());
  const Placement third = node("2", {"--elastic=2:3", "--join-port=4000"});
  CHECK_FALSE(third.cluster);
  CHECK(third.join == "m:4000");
  CHECK(place({"--no_ssh", "--node_rank=1", "--master_addr=fd00::1", "--elastic=1:3"}).join ==
        "[fd00::1]:29500");
  CHECK(
      error_of({"--elastic=1:3"}, {}).find("can only join by themselves: pass --join-port PORT") !=
      std::string::npos);
  CHECK(place({"--elastic=1:3", "--join-port=4000"}, {}).cluster->join_port == 4000);
}

}  // namespace zeroth::launcher::cluster_plan_test
