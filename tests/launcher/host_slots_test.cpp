#include "launcher/backends/hostfile.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace zeroth::launcher::host_slots_test {
namespace {

using Hosts = std::vector<HostSlots>;

const std::vector<HostEntry> kTwoByFour = {{"worker-0", 4, 1}, {"worker-1", 4, 2}};

Hosts choose(std::vector<std::string> flags, const std::vector<HostEntry>& hosts = kTwoByFour) {
  flags.push_back("prog");
  return choose_hosts(hosts, parse_command_line(flags));
}

std::string error_of(const std::vector<std::string>& flags,
                     const std::vector<HostEntry>& hosts = kTwoByFour) {
  return message_of<UsageError>([&] { choose(flags, hosts); });
}

const std::vector<int> kAll = {0, 1, 2, 3};

}  // namespace

TEST_CASE("without flags every slot of every host is used") {
  CHECK(choose({}) == Hosts{{"worker-0", kAll}, {"worker-1", kAll}});
}

TEST_CASE("filters choose hosts and slots as DeepSpeed's tests have it") {
  CHECK(choose({"-e", "worker-0:1"}) == Hosts{{"worker-0", {0, 2, 3}}, {"worker-1", kAll}});
  CHECK(choose({"-e", "worker-0:1,2"}) == Hosts{{"worker-0", {0, 3}}, {"worker-1", kAll}});
  CHECK(choose({"-i", "worker-0:1"}) == Hosts{{"worker-0", {1}}});
  CHECK(choose({"-i", "worker-0:1,1"}) == Hosts{{"worker-0", {1}}});
  CHECK(choose({"-i", "worker-0:1@worker-0:0,1"}) == Hosts{{"worker-0", {0, 1}}});
  CHECK(choose({"-i", "worker-1"}) == Hosts{{"worker-1", kAll}});
  CHECK(choose({"-i", "worker-1@worker-0:2"}) == Hosts{{"worker-0", {2}}, {"worker-1", kAll}});
  CHECK(choose({"-e", "worker-0"}) == Hosts{{"worker-1", kAll}});
  CHECK(choose({"-e", "worker-0:0,1,2,3"}) == Hosts{{"worker-1", kAll}});
  CHECK(choose({"-e", "worker-0:0,1@worker-1:3"}) ==
        Hosts{{"worker-0", {2, 3}}, {"worker-1", {0, 1, 2}}});
  CHECK(choose({"-i", "worker-1:3,0"}) == Hosts{{"worker-1", {0, 3}}});
}

TEST_CASE("a wrong filter is refused with what is known") {
  CHECK(error_of({"-i", "jeff"}) ==
        "--include jeff: unknown host 'jeff'; the hostfile has worker-0, worker-1");
  CHECK(error_of({"-e", "worker-1:4"}) ==
        "--exclude worker-1:4: unknown slot 4; worker-1 has 0 to 3 (line 2 of the hostfile)");
  CHECK(error_of({"-i", "worker-1@worker-0:1@5"}) ==
        "--include worker-1@worker-0:1@5: unknown host '5'; the hostfile has worker-0, worker-1");
  CHECK(error_of({"-i", "worker-0:1:2"}).find("unknown slot 1:2") != std::string::npos);
  CHECK(error_of({"-i", "worker-0:x"}).find("unknown slot x") != std::string::npos);
  CHECK(error_of({"-i", "worker-0:-1"}).find("unknown slot -1") != std::string::npos);
  CHECK(error_of({"-i", "worker-0:99999999999"}).find("unknown slot") != std::string::npos);
  CHECK(error_of({"-i", "worker-0:"}) == "--include worker-0:: a slot of worker-0 is missing");
  CHECK(error_of({"-i", "worker-0:0,,1"}).find("a slot of worker-0 is missing") !=
        std::string::npos);
  CHECK(error_of({"-i", "worker-0@"}).find("unknown host ''") != std::string::npos);
  CHECK(error_of({"-e", "worker-0@worker-1"}) == "--exclude worker-0@worker-1: no slot is left");
}

TEST_CASE("flags that clash are refused") {
  CHECK(error_of({"-i", "worker-0", "-e", "worker-1"}) ==
        "--include worker-0 and --exclude worker-1 cannot be combined");
  for (const char* filter : {"-i", "-e"}) {
    CHECK(error_of({filter, "worker-0", "--num_gpus=1"}).find("cannot be combined") !=
          std::string::npos);
    CHECK(error_of({filter, "worker-0", "--num_nodes=1"}).find("cannot be combined") !=
          std::string::npos);
  }
}

TEST_CASE("numbers take the first hosts and their first slots") {
  CHECK(choose({"--num_nodes=1"}) == Hosts{{"worker-0", kAll}});
  CHECK(choose({"--num_gpus=2"}) == Hosts{{"worker-0", {0, 1}}, {"worker-1", {0, 1}}});
  CHECK(choose({"--num_nodes=1", "--num_gpus=1"}) == Hosts{{"worker-0", {0}}});
  CHECK(error_of({"--num_nodes=3"}) == "--num_nodes 3, but the hostfile has only 2 hosts");
  CHECK(error_of({"--num_nodes=0"}) == "--num_nodes 0: at least one host is needed");
  CHECK(error_of({"--num_gpus=5"}) ==
        "--num_gpus 5, but worker-0 has only 4 slots (line 1 of the hostfile; --share-gpus lets "
        "several ranks use one GPU)");
  CHECK(choose({"--num_gpus=5", "--share-gpus", "--num_nodes=1"}) ==
        Hosts{{"worker-0", {0, 1, 2, 3, 4}}});
  CHECK(error_of({"--num_gpus=999999999", "--share-gpus"}) ==
        "--num_gpus 999999999: a host has at most 1024 slots");
}

TEST_CASE("a filter names hosts with users and IPv6 addresses") {
  const std::vector<HostEntry> hosts = {
      {"alice@worker-0", 2, 1}, {"fe80::1%eth0", 2, 2}, {"bob@::1", 2, 3}, {"Worker-1", 2, 4}};
  CHECK(choose({"-i", "alice@worker-0"}, hosts) == Hosts{{"alice@worker-0", {0, 1}}});
  CHECK(choose({"-i", "alice@worker-0:1"}, hosts) == Hosts{{"alice@worker-0", {1}}});
  CHECK(choose({"-i", "worker-0:1"}, hosts) == Hosts{{"alice@worker-0", {1}}});
  CHECK(choose({"-i", "worker-1:1@alice@worker-0:0@fe80::1%eth0"}, hosts) ==
        Hosts{{"alice@worker-0", {0}}, {"fe80::1%eth0", {0, 1}}, {"Worker-1", {1}}});
  CHECK(choose({"-i", "[fe80::1%eth0]:1@bob@[::1]:0"}, hosts) ==
        Hosts{{"fe80::1%eth0", {1}}, {"bob@::1", {0}}});
  CHECK(choose({"-i", "[::1]:1"}, hosts) == Hosts{{"bob@::1", {1}}});
  CHECK(choose({"-i", "::1"}, hosts) == Hosts{{"bob@::1", {0, 1}}});
  CHECK(error_of({"-i", "carol@worker-0"}, hosts).find("unknown host 'carol'") !=
        std::string::npos);
}

TEST_CASE("of long filters a message shows their beginning") {
  const std::string text(10'000, 'x');
  std::vector<HostEntry> hosts;
  for (int i = 0; i < 1000; ++i) hosts.push_back({fmt::format("worker-{}", i), 1, i + 1});
  for (const std::string& filter : {text, "worker-0:" + text, "worker-0@" + text})
    CHECK(error_of({"-i", filter}, hosts).size() < 500);
}

TEST_CASE("ranks are numbered host by host") {
  const Hosts hosts = {{"a", {0, 1}}, {"b", {3}}, {"c", {0, 1, 2}}};
  CHECK(count_ranks(hosts) == 6);
  CHECK(first_rank_of(hosts, 0) == 0);
  CHECK(first_rank_of(hosts, 1) == 2);
  CHECK(first_rank_of(hosts, 2) == 3);
}

}  // namespace zeroth::launcher::host_slots_test
