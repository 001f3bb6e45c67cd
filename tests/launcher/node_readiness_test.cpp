#include "launcher/cluster/node_readiness.h"

#include <doctest/doctest.h>

namespace zeroth::launcher::node_readiness_test {
namespace {

const Ready kReady{
    .accelerator = "cpu", .model = "", .master_port = 4711, .notes = {}, .machine = "", .gpus = {}};

NodeReadiness of_three() {
  return NodeReadiness({"a", "b", "c"}, "1.0");
}

Hello hello(int node, const std::string& version = "1.0") {
  return {.version = version, .node = node};
}

void all_ready(NodeReadiness& call, const std::vector<int>& nodes) {
  for (const int node : nodes) {
    CHECK(call.on_hello(hello(node)) == "");
    call.on_ready(node, kReady);
  }
}

}  // namespace

TEST_CASE("hosts that are all ready give no complaint") {
  NodeReadiness call = of_three();
  CHECK_FALSE(call.is_complete());
  all_ready(call, {1, 0});
  CHECK_FALSE(call.is_complete());
  CHECK_FALSE(call.all_connected());
  CHECK(call.on_hello(hello(2)) == "");
  CHECK(call.all_connected());
  CHECK_FALSE(call.is_complete());
  call.on_ready(2, kReady);
  CHECK(call.is_complete());
  CHECK(call.error() == "");
  CHECK(call.ready(1).master_port == 4711);
}

TEST_CASE("an agent of no host, a second one of a host and one of another version are sent away") {
  NodeReadiness call = of_three();
  CHECK(call.on_hello(hello(3)) == "agent 3 connected, but there are 3 hosts");
  CHECK(call.on_hello(hello(-1)) == "agent -1 connected, but there are 3 hosts");
  all_ready(call, {0, 1});
  CHECK(call.on_hello(hello(0)) == "a second agent of host a connected");
  CHECK(call.on_hello(hello(2, "0.9\n")) == "it has Zeroth 0.9\\n, the launcher is 1.0");
  CHECK(call.is_complete());
  CHECK(call.error() == "host c: it has Zeroth 0.9\\n, the launcher is 1.0");
}

TEST_CASE("all that is wrong with all hosts comes in one message") {
  NodeReadiness call = of_three();
  call.on_node_lost(0, "ssh ended with exit code 255: Permission denied");
  CHECK(call.on_hello(hello(1)) == "");
  call.on_problems(1, {{"no program", "no folder"}});
  call.on_node_lost(1, "the connection ended");
  CHECK_FALSE(call.is_complete());
  call.give_up("no agent came within 60 s");
  CHECK(call.is_complete());
  CHECK(call.error() ==
        "3 of 3 hosts cannot run their ranks:\n"
        "  host a: ssh ended with exit code 255: Permission denied\n"
        "  host b: no program\n"
        "  host b: no folder\n"
        "  host c: no agent came within 60 s");
}

TEST_CASE("a host that was ready and is lost is no longer ready") {
  NodeReadiness call = of_three();
  all_ready(call, {0, 1, 2});
  call.on_node_lost(1, "the connection ended");
  CHECK(call.error() == "host b: the connection ended");
}

TEST_CASE("a host with another model or accelerator is told beside the first one") {
  NodeReadiness call = of_three();
  all_ready(call, {0, 1, 2});
  Ready other = kReady;
  other.model = "00";
  call.on_ready(1, other);
  other = kReady;
  other.accelerator = "cuda";
  call.on_ready(2, other);
  CHECK(call.error() ==
        "2 of 3 hosts cannot run their ranks:\n"
        "  host b: the folder of --model exists, unlike on a\n"
        "  host c: its ranks would use cuda, those of a cpu: DS_ACCELERATOR sets it");
  Ready first = kReady;
  first.model = "11";
  call.on_ready(0, first);
  call.on_ready(2, first);
  CHECK(call.error() ==
        "host b: the folder of --model is not the same as on a: config.json or an index of weights "
        "differs");
}

TEST_CASE("a host that answers late is compared with the one that runs, and not the other way") {
  NodeReadiness call = of_three();
  all_ready(call, {1, 2});
  call.compare_with(1);
  CHECK(call.on_hello(hello(0)) == "");
  Ready other = kReady;
  other.model = "another";
  call.on_ready(0, other);
  CHECK(call.is_usable(1));
  CHECK(call.is_usable(2));
  CHECK_FALSE(call.is_usable(0));
  call.recheck(1);  // its new answer is awaited: nobody is judged by another's
  call.recheck(2);
  call.on_ready(2, kReady);
  CHECK(call.is_usable(2));
  call.on_node_lost(1, "gone");
  CHECK(call.is_ready(2));
}

TEST_CASE("hosts that are one machine are named together") {
  NodeReadiness call({"a", "b", "c", "d"}, "1.0");
  all_ready(call, {0, 1, 2, 3});
  const std::vector<std::string> machines = {"m1", "m2", "m1", "m1"};
  for (int node = 0; node < 4; ++node) {
    Ready ready = kReady;
    ready.machine = machines[static_cast<size_t>(node)];
    call.on_ready(node, ready);
  }
  CHECK(call.error() == "");
  CHECK(call.same_machine_notes({0, 1}).empty());
  CHECK(call.same_machine_notes({0, 1, 2, 3}) ==
        std::vector<std::string>{
            "hosts a and c and d are the same machine: their ranks share its GPUs and cores"});
  call.on_node_lost(0, "the connection ended");
  CHECK(call.same_machine_notes({0, 1, 2}).empty());
}

TEST_CASE("a machine's GPUs are not given out twice under two names") {
  NodeReadiness call({"a", "b", "c"}, "1.0");
  const auto with = [&](int node, const std::string& machine, std::vector<std::string> gpus) {
    Ready ready = kReady;
    ready.accelerator = "cuda";
    ready.machine = machine;
    ready.gpus = std::move(gpus);
    call.on_ready(node, ready);
  };
  with(0, "m1", {"0", "1"});
  with(1, "m2", {"0", "1"});
  with(2, "m1", {"2", "3"});
  CHECK(call.error() == "");
  with(2, "m1", {"1", "2", "0"});
  CHECK(call.error() ==
        "host c: it is the same machine as a, whose ranks already use GPUs 1, 0 (--share-gpus lets "
        "several ranks use one)");
  CHECK(call.is_usable(0));
  CHECK_FALSE(call.is_usable(2));
  CHECK(call.has_gpu_conflict(2));
  CHECK_FALSE(call.has_gpu_conflict(0));
  with(2, "m1", {});  // they are shared
  CHECK(call.is_usable(2));
  with(2, "m1", {"0"});
  call.on_node_lost(0, "the connection ended");
  CHECK(call.is_usable(2));
  CHECK_FALSE(call.has_gpu_conflict(2));
}

TEST_CASE("hosts that do not know which machine they are count as machines of their own") {
  NodeReadiness call({"a", "b"}, "1.0");
  Ready hidden = kReady;
  hidden.machine = "";
  hidden.gpus = {"0"};
  for (int node = 0; node < 2; ++node) {
    call.on_hello(hello(node));
    call.on_ready(node, hidden);
  }
  CHECK(call.error().empty());
  CHECK(call.same_machine_notes({0, 1}).empty());
}

TEST_CASE("unreachable_host_silent: while hosts do not answer it is told which") {
  NodeReadiness call = of_three();
  all_ready(call, {0});
  const std::chrono::milliseconds waited(8'200), limit(60'000);
  CHECK(call.describe_waiting(waited, limit) ==
        "waiting for an agent on b, c: 8 s so far, up to 60 s; 1 of 3 hosts has answered");
  CHECK(call.on_hello(hello(1)) == "");
  CHECK(call.describe_waiting(waited, limit) ==
        "waiting for an agent on c, and for b to check program, model and slots: 8 s so far, up "
        "to 60 s; 1 of 3 hosts has answered");
  NodeReadiness many(std::vector<std::string>(100, "x"), "1.0");
  CHECK(many.describe_waiting(waited, limit).find("x and 84 more: 8 s") != std::string::npos);
}

}  // namespace zeroth::launcher::node_readiness_test
