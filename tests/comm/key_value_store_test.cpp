#include "comm/bootstrap/key_value_store.h"

#include <doctest/doctest.h>

#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/error.h"
#include "base/machine/timer.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm::key_value_store_test {
namespace {

using std::chrono::milliseconds;
using Value = std::vector<uint8_t>;

const std::string kSecret = "a secret of the run";

RankEnv rank_of(int rank, int size) {
  RankEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = size;
  env.rank_variables = fmt::format("RANK={}, WORLD_SIZE={}", rank, size);
  return env;
}

}  // namespace

TEST_CASE("ranks with one secret read what they wrote, whatever bytes are in it") {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  const auto one = make_signed_store(plain, kSecret, "run");
  const auto other = make_signed_store(plain, kSecret, "run")->clone();
  for (const Value& value : {Value{}, Value{0, 255, 10, 0}, Value(100'000, 7)}) {
    one->set("key", value);
    CHECK(other->get("key") == value);
  }
  CHECK(one->add("count", 2) == 2);
  CHECK(other->add("count", 1) == 3);
  CHECK(other->check({"key"}));
}

TEST_CASE("what somebody without the secret wrote, or moved, is not believed") {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  const auto store = make_signed_store(plain, kSecret, "run");
  const auto is_refused = [&](const std::string& key) {
    CHECK_THROWS_WITH_AS(
        store->get(key),
        doctest::Contains(
            ("'" + key + "' in the store was not written with this rank's secret").c_str()),
        Error);
  };
  plain->set("unsigned", Value{1, 2, 3});
  is_refused("unsigned");
  plain->set("long", Value(100, 'a'));
  is_refused("long");
  make_signed_store(plain, "another secret of a run", "run")->set("forged", Value{1});
  is_refused("forged");
  make_signed_store(plain, kSecret, "an earlier run")->set("old", Value{1});
  is_refused("old");
  store->set("here", Value{1});
  plain->set("there", plain->get("here"));
  is_refused("there");
  Value changed = plain->get("here");
  changed[0] = 2;
  plain->set("here", changed);
  is_refused("here");
}

TEST_CASE("silent_rendezvous: a wait is told of before ten seconds are over, then once a minute") {
  SlowWait wait;
  std::vector<int> reported;
  for (int second = 0; second <= 200; ++second)
    if (wait.due(std::chrono::seconds(second))) reported.push_back(second);
  CHECK(reported == std::vector<int>{8, 68, 128, 188});
  CHECK(SlowWait::kFirst < std::chrono::seconds(10));
  SlowWait jumps;  // the process was busy elsewhere
  CHECK(jumps.due(std::chrono::seconds(100)));
  CHECK_FALSE(jumps.due(std::chrono::seconds(159)));
  CHECK(jumps.due(std::chrono::seconds(160)));
}

TEST_CASE("silent_rendezvous: the line says who waits for whom, why it is a rank and until when") {
  const RankEnv env = rank_of(0, 8);
  CHECK(describe_wait(env, "ranks 1 to 7", milliseconds(8'100)) ==
        "rank 0 of 8 (by RANK=0, WORLD_SIZE=8) waits for ranks 1 to 7 at 127.0.0.1:29500: 8 s so "
        "far, up to 600 s (--timeout, DEEPSPEED_TIMEOUT); unset these variables for a process that "
        "runs alone");
  CHECK(describe_ranks({3}) == "rank 3");
  CHECK(describe_ranks({1, 2}) == "ranks 1 and 2");
  CHECK(describe_ranks({1, 2, 3, 4}) == "ranks 1 to 4");
  CHECK(describe_ranks({1, 2, 5}) == "ranks 1, 2 and 5");
  std::vector<int> odd;
  for (int rank = 1; rank < 101; rank += 2) odd.push_back(rank);
  CHECK(describe_ranks(odd).ends_with("29, 31 and 34 more"));
}

TEST_CASE("silent_rendezvous: a store that waits gives what the store below it does") {
  const auto below = c10::make_intrusive<c10d::HashStore>();
  const auto store = make_waiting_store(below, rank_of(0, 2));
  CHECK(below->check({"come/0"}));
  CHECK_FALSE(below->check({"come/1"}));
  std::thread other([&] {
    const auto others = make_waiting_store(below, rank_of(1, 2));
    others->set("key", std::string("value"));
  });
  CHECK(store->get_to_str("key") == "value");
  other.join();
  CHECK(store->add("count", 2) == 2);
  CHECK(store->deleteKey("key"));
  CHECK(message_of<Error>([&] {
          store->wait({"key"}, milliseconds(3));
        }).find("timed out after ") != std::string::npos);
}

}  // namespace zeroth::comm::key_value_store_test
