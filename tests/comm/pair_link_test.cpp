// Two ranks with a connection of their own, as threads of this process.
#include "comm/groups/pair_link.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/error.h"
#include "comm/groups/gloo_group.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm::pair_link_test {
namespace {

constexpr std::chrono::seconds kLong{30};

// `limit`: of what the two swap.
void on_two(const std::function<void(C10dGroup&)>& fn, std::chrono::milliseconds limit = kLong) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch both(2);
  const auto rank = [&](int number) {
    const PairOptions pair{"127.0.0.1", "of a test", "the secret", kLong};
    GlooOptions options{.address = "127.0.0.1", .timeout = kLong};
    options.group.link = std::make_shared<PairLink>(connect_pair(*store, number, pair), limit);
    const auto group = make_gloo_group(store, number, 2, options);
    both.arrive_and_wait();  // none leaves while the other still connects
    fn(*group);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

}  // namespace

TEST_CASE("two ranks get each other's tensors, in the order of the calls, of any size") {
  on_two([](C10dGroup& group) {
    std::vector<torch::Tensor> in, out;
    std::vector<CollectiveHandle> pending;
    for (const int64_t n : {1, 5, 100'000, 0, 4 << 20, 3}) {
      in.push_back(torch::full({n}, 10 * std::ssize(in) + group.rank()));
      out.push_back(torch::full({n}, -1));
      pending.push_back(group.send_recv(out.back(), in.back(), {}));
    }
    for (size_t i = in.size(); i-- > 0;) {
      pending[i].wait();
      CHECK(out[i].eq(10 * static_cast<int64_t>(i) + 1 - group.rank()).all().item<bool>());
    }
    CHECK(group.times().collectives == 6);
  });
}

TEST_CASE("a tensor may go in one direction alone") {
  on_two([](C10dGroup& group) {
    const torch::Tensor none = torch::empty({0}), tensor = torch::full({70'000}, group.rank() + 1);
    const bool sends = group.rank() == 1;
    group.send_recv(sends ? none : tensor, sends ? tensor : none, {}).wait();
    CHECK(tensor.eq(2).all().item<bool>());
  });
}

TEST_CASE("swaps and other collectives of a group do not disturb each other") {
  on_two([](C10dGroup& group) {
    const torch::Tensor in = torch::full({50'000}, group.rank() + 1), out = torch::empty_like(in);
    const torch::Tensor sum = in.clone();
    CollectiveHandle swapped = group.send_recv(out, in, {});
    group.all_reduce(sum).wait();
    swapped.wait();
    CHECK(sum.eq(3).all().item<bool>());
    CHECK(out.eq(2 - group.rank()).all().item<bool>());
  });
}

TEST_CASE("a swap with a rank that is gone, or does not come, ends with an error that names it") {
  on_two([](C10dGroup& group) {
    if (group.rank() == 1) return;
    const torch::Tensor in = torch::ones({1000}), out = torch::empty_like(in);
    CollectiveHandle first = group.send_recv(out, in, "gradients");
    CollectiveHandle second = group.send_recv(torch::empty_like(in), in, "moments");
    const std::string message = message_of<Error>([&] { first.wait(); });
    CAPTURE(message);
    CHECK(message.starts_with("rank 0 of 2: exchange of gradients (1000 elements) over "));
    CHECK(message.find("the connection ended") != std::string::npos);
    CHECK_FALSE(message_of<Error>([&] { second.wait(); }).empty());
    CollectiveHandle third = group.send_recv(out, in, {});
    CHECK_FALSE(message_of<Error>([&] { third.wait(); }).empty());
  });
}

TEST_CASE("a rank that is there but does not take part in a swap is waited for up to the limit") {
  for (const int64_t n : {1000, 8 << 20}) {  // what fits into the system's buffers, and what not
    std::promise<void> ended;
    on_two(
        [&, future = ended.get_future().share()](C10dGroup& group) {
          if (group.rank() == 1) return future.wait();
          CollectiveHandle pending = group.send_recv(torch::empty({n}), torch::ones({n}), {});
          const std::string message = message_of<Error>([&] { pending.wait(); });
          CHECK(message.find("timed out after ") != std::string::npos);
          CHECK(message.find(" s (--timeout, DEEPSPEED_TIMEOUT)") != std::string::npos);
          ended.set_value();
        },
        std::chrono::milliseconds(500));
  }
}

TEST_CASE("ranks that swap tensors of unlike sizes are told so") {
  std::atomic<int> reported = 0, failed = 0;
  on_two([&](C10dGroup& group) {
    const torch::Tensor in = torch::ones({group.rank() == 0 ? 10 : 20});
    CollectiveHandle pending = group.send_recv(torch::empty_like(in), in, {});
    const std::string message = message_of<Error>([&] { pending.wait(); });
    failed += message.empty() ? 0 : 1;
    reported += message.find("the other rank sent ") != std::string::npos ? 1 : 0;
  });
  CHECK(failed == 2);
  CHECK(reported >= 1);  // the first to find out, which ends the connection
}

TEST_CASE("a group that is closed ends what is under way") {
  on_two([](C10dGroup& group) {
    if (group.rank() == 0) group.send_recv(torch::empty({1000}), torch::ones({1000}), {});
  });
}

TEST_CASE("a peer whose machine vanishes while nothing is sent is noticed within a minute") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const PairOptions pair{"127.0.0.1", "of a test", "the secret", kLong};
  std::thread other([&] { const PairLink link(connect_pair(*store, 1, pair), kLong); });
  FileDescriptor socket = connect_pair(*store, 0, pair);
  const FileDescriptor same(::dup(socket.get()));
  const PairLink link(std::move(socket), kLong);
  other.join();
  const auto option = [&](int level, int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    REQUIRE(::getsockopt(same.get(), level, name, &value, &size) == 0);
    return value;
  };
  CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(option(IPPROTO_TCP, TCP_KEEPIDLE) +
            option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT) ==
        60);
  CHECK(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);  // a rank may read nothing for longer
}

}  // namespace zeroth::comm::pair_link_test
