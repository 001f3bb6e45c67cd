// What somebody on the network can do to the ports at which Gloo connects ranks of several
// machines.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/cpu_collectives.h"
#include "tests/support/listeners.h"
#include "tests/support/ranks.h"
#include "tests/support/stranger.h"

namespace zeroth::comm::gloo_strangers_test {
namespace {

// "0100007F:7325"
int port_of(const std::string& listener) {
  const std::string text = listener.substr(listener.find(':') + 1);
  int port = 0;
  std::from_chars(text.data(), text.data() + text.size(), port, 16);
  return port;
}

// Both ends are this process's.
size_t max_strangers() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  return std::min<size_t>(300, files.rlim_cur / 16);
}

// Silent ones, ones that have said half of what Gloo wants to hear (8 bytes), and garbage.
std::vector<FileDescriptor> annoy(int port) {
  std::vector<FileDescriptor> all;
  const std::string garbage(4096, '\xA5');
  for (size_t i = 0; i < max_strangers(); ++i) {
    FileDescriptor fd = testing::stranger_at(port);
    if (fd.get() < 0) continue;
    const size_t said = i % 3 == 0 ? 0 : i % 3 == 1 ? 4 : garbage.size();
    if (said > 0) (void)::send(fd.get(), garbage.data(), said, MSG_NOSIGNAL | MSG_DONTWAIT);
    all.push_back(std::move(fd));
  }
  return all;
}

void check_sums(DeviceMesh& mesh) {
  for (const int64_t n : {1, 1000, 1 << 20}) {
    const torch::Tensor sum = torch::full({n}, mesh.rank() + 1);
    mesh.world().all_reduce(sum).wait();
    CHECK(sum.eq(10).all().item<bool>());
  }
}

}  // namespace

TEST_CASE("ranks of several machines listen at the address that was chosen alone") {
  testing::RankOptions options;
  options.nodes = {"a", "a", "b", "b"};
  testing::run_ranks(
      4,
      [](std::shared_ptr<DeviceMesh> mesh) {
        barrier(*mesh);
        if (mesh->rank() == 0) {
          const auto listeners = testing::listeners_of("self");
          CHECK_FALSE(listeners.empty());
          for (const std::string& listener : listeners) {
            CAPTURE(listener);
            CHECK(listener.starts_with("0100007F:"));  // 127.0.0.1
          }
        }
        barrier(*mesh);
      },
      options);
}

TEST_CASE("strangers at Gloo's ports do not change sums of a run that has begun") {
  std::atomic<size_t> came = 0;
  testing::RankOptions options{.timeout = std::chrono::seconds(20)};
  options.nodes = {"a", "a", "b", "b"};
  testing::run_ranks(
      4,
      [&](std::shared_ptr<DeviceMesh> mesh) {
        barrier(*mesh);
        std::vector<FileDescriptor> strangers;
        std::thread during;
        if (mesh->rank() == 0) {
          std::vector<int> ports;
          for (const std::string& listener : testing::listeners_of("self"))
            ports.push_back(port_of(listener));
          during = std::thread([&strangers, ports] {
            for (const int port : ports) {
              for (FileDescriptor& fd : annoy(port)) strangers.push_back(std::move(fd));
            }
          });
        }
        for (int step = 0; step < 10; ++step) check_sums(*mesh);
        if (during.joinable()) during.join();
        if (mesh->rank() == 0) came = strangers.size();
        check_sums(*mesh);  // with all of them there
        barrier(*mesh);
      },
      options);
  CHECK(came > 0);
}

TEST_CASE(
    "strangers at the ports of ranks that connect: the run begins, or ends with an error in time") {
  const std::vector<std::string> four = {"a", "b", "c", "d"}, two = {"a", "a", "b", "b"};
  size_t came = 0;
  for (const auto& nodes : {four, two, four, two, four, two}) {  // some come at the right moment
    CAPTURE(nodes.back());
    testing::RankOptions options{.timeout = std::chrono::seconds(20)};
    options.nodes = nodes;
    std::atomic<bool> over = false;
    std::vector<FileDescriptor> strangers;
    std::thread during([&] {
      std::set<int> known;
      while (!over) {
        for (const std::string& listener : testing::listeners_of("self"))
          if (const int port = port_of(listener); known.insert(port).second)
            for (FileDescriptor& fd : annoy(port)) strangers.push_back(std::move(fd));
      }
    });
    std::string said;
    const auto begun = std::chrono::steady_clock::now();
    try {
      testing::run_ranks(
          4, [](std::shared_ptr<DeviceMesh> mesh) { check_sums(*mesh); }, options);
    } catch (const Error& error) {
      said = error.what();
    }
    over = true;
    during.join();
    CAPTURE(said);
    CHECK(std::chrono::steady_clock::now() - begun < 3 * options.timeout);
    CHECK((said.empty() || said.find("rank ") != std::string::npos));
    came += strangers.size();
  }
  CHECK(came > 0);
}

}  // namespace zeroth::comm::gloo_strangers_test
