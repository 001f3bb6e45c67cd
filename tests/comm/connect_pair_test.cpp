#include "comm/groups/pair_link.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/error.h"
#include "base/text/units.h"
#include "comm/bootstrap/rank_bootstrap.h"
#include "tests/support/listeners.h"
#include "tests/support/stranger.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm::connect_pair_test {
namespace {

PairOptions options_of(const std::string& secret = "the secret",
                       std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  return {"127.0.0.1", "ranks 0 and 1", secret, timeout};
}

// Where the first of two listens.
int port_in(c10d::Store& store) {
  const auto value = store.get("pair");
  const std::string text(value.begin(), value.end());
  CHECK(text.starts_with("127.0.0.1 "));
  return parse_number<int>(text.substr(text.find(' ') + 1)).value_or(0);
}

void send_text(const FileDescriptor& fd, const std::string& text) {
  (void)::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

struct Impostor {
  FileDescriptor door;
  c10::intrusive_ptr<c10d::HashStore> store;
};

// What listens where the store says that the first of two does.
Impostor impostor_of_rank_0() {
  FileDescriptor door = listen_at("127.0.0.1", 0);
  REQUIRE(::fcntl(door.get(), F_SETFL, O_NONBLOCK) == 0);
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  REQUIRE(::getsockname(door.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  auto store = c10::make_intrusive<c10d::HashStore>();
  const std::string name = fmt::format("127.0.0.1 {}", ntohs(address.sin_port));
  store->set("pair", std::vector<uint8_t>(name.begin(), name.end()));
  return {std::move(door), std::move(store)};
}

void check_connected(const FileDescriptor& first, const FileDescriptor& second) {
  send_text(first, "a");
  send_text(second, "b");
  char byte = 0;
  CHECK((::recv(second.get(), &byte, 1, 0) == 1 && byte == 'a'));
  CHECK((::recv(first.get(), &byte, 1, 0) == 1 && byte == 'b'));
}

}  // namespace

TEST_CASE("two ranks connect, and nothing listens any more") {
  for (const char* secret : {"the secret", ""}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const size_t before = testing::listeners_of("self").size();
    FileDescriptor second;
    std::thread other([&] { second = connect_pair(*store, 1, options_of(secret)); });
    const FileDescriptor first = connect_pair(*store, 0, options_of(secret));
    other.join();
    CHECK(testing::listeners_of("self").size() == before);
    check_connected(first, second);
  }
}

TEST_CASE("strangers at the port of two ranks keep them from nothing") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  FileDescriptor first;
  std::thread listener([&] { first = connect_pair(*store, 0, options_of()); });
  const int port = port_in(*store);
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 100; ++i) {  // more than are let in at once
    strangers.push_back(testing::stranger_at(port));
    REQUIRE(strangers.back().get() >= 0);
    if (i % 3 == 1) send_text(strangers.back(), "half of it");
    if (i % 3 == 2) send_text(strangers.back(), std::string(64, '\xA5'));
    if (i % 7 == 0) strangers.back().close();
  }
  const FileDescriptor second = connect_pair(*store, 1, options_of());
  listener.join();
  check_connected(first, second);
}

TEST_CASE("a rank with another secret, or of other two, is not believed") {
  PairOptions others = options_of("the secret", std::chrono::milliseconds(500));
  others.name = "ranks 2 and 3";
  for (const PairOptions& wrong : {options_of("another", std::chrono::milliseconds(500)), others}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::string of_listener;
    std::thread listener([&] {
      const PairOptions right = options_of("the secret", std::chrono::seconds(5));
      of_listener = message_of<Error>([&] { connect_pair(*store, 0, right); });
    });
    const std::string of_other = message_of<Error>([&] { connect_pair(*store, 1, wrong); });
    listener.join();
    CHECK(of_other.find("cannot connect to 127.0.0.1 ") != std::string::npos);
    CHECK(of_other.find("does not have the run's secret") != std::string::npos);
    CHECK(of_listener.find("the other rank did not connect") != std::string::npos);
  }
}

TEST_CASE("what says nothing in place of a rank uses up the time that a rank waits") {
  const Impostor there = impostor_of_rank_0();
  const std::string message = message_of<Error>(
      [&] { connect_pair(*there.store, 1, options_of("the secret", std::chrono::seconds(1))); });
  CHECK(message.find("the process there is not the other rank") != std::string::npos);
  const FileDescriptor first(::accept(there.door.get(), nullptr, nullptr));
  CHECK(first.get() >= 0);
  const FileDescriptor second(::accept(there.door.get(), nullptr, nullptr));
  CHECK(second.get() < 0);  // one attempt took all that it had
}

TEST_CASE("what listens in place of a rank is not believed") {
  const Impostor there = impostor_of_rank_0();
  std::atomic<bool> ended = false;
  std::thread impostor([&] {
    FileDescriptor fd;
    while (fd.get() < 0 && !ended) {
      pollfd door{there.door.get(), POLLIN, 0};
      ::poll(&door, 1, 20);
      fd = FileDescriptor(::accept(door.fd, nullptr, nullptr));
    }
    send_text(fd, std::string(32, 'n'));
    std::string heard(64, '\0');
    CHECK(::recv(fd.get(), heard.data(), heard.size(), MSG_WAITALL) == 64);
    send_text(fd, std::string(32, 'p'));
    while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  const std::string message = message_of<Error>(
      [&] { connect_pair(*there.store, 1, options_of("the secret", std::chrono::seconds(2))); });
  ended = true;
  impostor.join();
  CHECK(message.find("the process there is not the other rank") != std::string::npos);
}

}  // namespace zeroth::comm::connect_pair_test
