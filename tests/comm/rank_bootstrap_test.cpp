#include "comm/bootstrap/rank_bootstrap.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "base/machine/memory_file.h"
#include "comm/collective_info.h"
#include "comm/cpu_collectives.h"
#include "comm/device_mesh.h"
#include "comm/nodes/shared_segment.h"
#include "tests/support/child_process.h"
#include "tests/support/listeners.h"
#include "tests/support/second_user.h"
#include "tests/support/waited.h"

namespace zeroth::comm::rank_bootstrap_test {
namespace {

int port_of(const FileDescriptor& socket) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  REQUIRE(getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

int free_port() {
  return port_of(listen_at("127.0.0.1", 0));
}

// Of ranks that come, and of those that wait for another one in vain.
constexpr std::chrono::seconds kUsual{60}, kInVain{4};

RankEnv env_of(int rank, int port) {
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);  // two ranks in one process, see run_ranks
  RankEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_size = 2;
  env.master_port = port;
  env.accelerator = "cpu";
  env.timeout = kUsual;
  return env;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// The errors of two ranks that connect at a time; empty: they did, and summed. `changed` may alter
// a rank's environment, and hold it up.
std::vector<std::string> connect(int port, const std::function<void(RankEnv&)>& changed) {
  std::vector<std::string> errors(2);
  const auto join = [&](int rank) {
    errors[static_cast<size_t>(rank)] = error_of([&] {
      RankEnv env = env_of(rank, port);
      changed(env);
      const auto mesh = make_mesh(env);
      const torch::Tensor tensor = torch::full({1}, rank + 1.0);
      mesh->world().all_reduce(tensor).wait();
      if (tensor.item<double>() != 3) throw Error("a wrong sum");
      for (const std::string& local : testing::listeners_of("self"))
        if (!local.starts_with("0100007F:")) throw Error("others reach the port {}", local);
    });
  };
  std::thread other(join, 1);
  join(0);
  other.join();
  return errors;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks meet in their launcher's memory as often as they like, and no port is open") {
  const MemoryFile meeting = MemoryFile::create("zeroth-meeting");
  for (int turn = 0; turn < 3; ++turn) {
    const auto errors = connect(free_port(), [&](RankEnv& env) {
      env.bootstrap_ticket = meeting.ticket();
      env.master_addr = "192.0.2.1";  // nobody asks there
    });
    CHECK(errors == std::vector<std::string>(2));
  }
  CHECK(testing::listeners_of("self").empty());
}

TEST_CASE("over Gloo, too, ranks of a launcher meet in its memory") {
  const MemoryFile meeting = MemoryFile::create("zeroth-meeting");
  const auto errors = connect(free_port(), [&](RankEnv& env) {
    env.bootstrap_ticket = meeting.ticket();
    env.shared_memory = false;
  });
  CHECK(errors == std::vector<std::string>(2));
}

TEST_CASE("time in which the process is suspended while ranks meet does not count") {
  using std::chrono::seconds;
  const ChildResult result = in_child([] {
    continue_when_stopped_for(seconds(10));
    const MemoryFile meeting = MemoryFile::create("zeroth-meeting");
    const auto errors = connect(1, [&](RankEnv& env) {
      env.bootstrap_ticket = meeting.ticket();
      env.timeout = seconds(4);  // of each question; of all together twice that, and one
      if (env.rank == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // rank 0 waits for this one
      ::raise(SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    });
    const std::string said = errors[0] + errors[1];
    return ::write(STDERR_FILENO, said.data(), said.size()) != 0 ? 1 : 0;
  });
  CHECK_MESSAGE(result.status == 0, result.err);
}

TEST_CASE("a rank that cannot see its launcher's memory says so, and what it may do") {
  MemoryFile meeting = MemoryFile::create("zeroth-meeting");
  RankEnv env = env_of(1, 1);
  env.bootstrap_ticket = meeting.ticket();
  meeting.close();
  const std::string message = error_of([&] { bootstrap_ranks(env); });
  CHECK(
      message.starts_with("rank 1 of 2: cannot connect through the launcher's memory "
                          "(ZEROTH_MEETING): cannot open /proc/"));
  CHECK(message.ends_with("without that variable ranks connect at MASTER_ADDR:MASTER_PORT"));
}

TEST_CASE(
    "a store's port is that of the master address alone, and closed once ranks share memory") {
  const int port = free_port();
  RankEnv env = env_of(0, port);
  {
    const RankBootstrap place = bootstrap_ranks(env);
    CHECK(testing::listeners_of("self") ==
          std::vector<std::string>{fmt::format("0100007F:{:04X}", port)});
  }
  CHECK(testing::listeners_of("self").empty());
  std::thread other([&] {
    const auto mesh = make_mesh(env_of(1, port));
    barrier(*mesh);
  });
  const auto mesh = make_mesh(env);
  CHECK(testing::listeners_of("self").empty());
  barrier(*mesh);
  other.join();
}

TEST_CASE("ranks that come before rank 0 listens find it when it does") {
  const int port = free_port();
  std::string heard;
  std::thread early([&] {
    const RankBootstrap place = bootstrap_ranks(env_of(1, port));
    const auto value = place.store->get("word");
    heard.assign(value.begin(), value.end());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const RankBootstrap place = bootstrap_ranks(env_of(0, port));
  place.store->set("word", std::vector<uint8_t>{'y', 'e', 's'});
  early.join();
  CHECK(heard == "yes");
}

TEST_CASE("a stranger who holds the port and is silent is told within the time limit") {
  const FileDescriptor silent = listen_at("127.0.0.1", 0);
  const int port = port_of(silent);
  const auto errors = connect(port, [](RankEnv& env) { env.timeout = kInVain; });
  CHECK(errors[0] == fmt::format("rank 0 of 2: cannot reach the store at 127.0.0.1:{0}: "
                                 "MASTER_PORT={0} of 127.0.0.1 is taken by another program",
                                 port));
  CHECK_MESSAGE(
      errors[1].starts_with(fmt::format(
          "rank 1 of 2: cannot reach the store at 127.0.0.1:{}: something is listening there, "
          "but it is not the store of a run: timed out after ",
          port)),
      errors[1]);
  const double limit = std::chrono::duration<double>(kInVain).count();
  CHECK(testing::seconds_waited(errors[1]) >= limit);
  CHECK(testing::seconds_waited(errors[1]) < limit + 2);
}

TEST_CASE("ranks with one secret connect, over shared memory and over TCP") {
  for (const bool shared : {true, false}) {
    const auto errors = connect(free_port(), [&](RankEnv& env) {
      env.secret = "a secret of the run";
      env.shared_memory = shared;
    });
    CHECK(errors == std::vector<std::string>(2));
  }
}

TEST_CASE(
    "ranks with different secrets, or one without, do not believe each other, and tell none") {
  constexpr const char* kFirst = "a battery of horses";
  for (const char* second : {"a stable of staples", ""}) {
    const auto errors = connect(free_port(), [&](RankEnv& env) {
      env.secret = env.rank == 0 ? kFirst : second;
      env.timeout = kInVain;
    });
    for (const std::string& error : errors) {
      CAPTURE(error);
      CHECK_FALSE(error.empty());
      CHECK_FALSE(has(error, kFirst));
      CHECK_FALSE(has(error, "stable"));
    }
    if (*second != '\0')
      CHECK_MESSAGE(has(errors[1],
                        "'zeroth/0/1/host/ticket' in the store was not written with this rank's "
                        "secret: ZEROTH_SECRET"),
                    errors[1]);
  }
}

// What a stranger writes into the store of two ranks, after rank 0 and before rank 1 looks; rank 1
// waits for `arrived`, a key that is there when the word can no longer be written over.
std::vector<std::string> poisoned(const std::string& key, const std::string& value,
                                  const std::string& arrived) {
  const int port = free_port();
  return connect(port, [&](RankEnv& env) {
    env.timeout = kInVain;
    if (env.rank == 0) return;
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.waitWorkers = false;
    const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    store->wait({"zeroth/0/1/host/ticket"});
    store->set("zeroth/0/1/host/" + key, std::vector<uint8_t>(value.begin(), value.end()));
    store->wait({"zeroth/0/1/host/" + arrived});
  });
}

TEST_CASE("a stranger's word in an open store does not move ranks from shared memory to TCP") {
  const auto errors = poisoned("1", "no memory today", "verdict");
  CHECK(has(errors[0],
            "rank 0 of 2: the ranks of this host cannot share memory: rank 1: no memory "
            "today; over TCP ranks need ZEROTH_SECRET"));
  CHECK_FALSE(errors[1].empty());
}

TEST_CASE("a stranger's ticket in an open store is refused by every rank" * in_neighbours) {
  if (!may_become_nobody()) return;
  const Nobody stranger([] {
    static MemoryFile file = MemoryFile::create("zeroth:run");
    file.seal_size(4096);
    return file.ticket();
  });
  const auto errors = poisoned("ticket", stranger.said(), "ticket");
  for (const std::string& error : errors)
    CHECK(has(error, "belongs to user 65534, not to this process's user 0"));
}

TEST_CASE("a run that comes to the port of another one is refused there by name") {
  const int port = free_port();
  const auto errors = connect(port, [&](RankEnv& env) {
    if (env.rank == 1) env.rank = 0;
    env.timeout = kInVain;
  });
  CHECK((has(errors[0], "is taken by another program") ||
         has(errors[1], "is taken by another program")));
}

TEST_CASE("a socket listens at the address that was given, and at no other") {
  const size_t before = testing::listeners_of("self").size();
  const FileDescriptor socket = listen_at("127.0.0.7", 0);
  const auto listeners = testing::listeners_of("self");
  REQUIRE(listeners.size() == before + 1);
  const auto is_it = [&](const std::string& local) {
    return local == fmt::format("0700007F:{:04X}", port_of(socket));
  };
  CHECK(std::any_of(listeners.begin(), listeners.end(), is_it));
}

TEST_CASE("a port that is taken and an address of another machine are named") {
  const FileDescriptor socket = listen_at("127.0.0.1", 0);
  const int port = port_of(socket);
  const std::string taken =
      fmt::format("MASTER_PORT={} of 127.0.0.1 is taken by another program", port);
  CHECK_THROWS_WITH_AS(listen_at("127.0.0.1", port), taken.c_str(), Error);
  CHECK_THROWS_WITH_AS(listen_at("192.0.2.1", port),
                       "MASTER_ADDR=192.0.2.1 is not an address of this machine, where rank 0 runs",
                       Error);
  CHECK_THROWS_WITH_AS(listen_at("no such name", port),
                       doctest::Contains("MASTER_ADDR=no such name: "), Error);
}

}  // namespace zeroth::comm::rank_bootstrap_test
