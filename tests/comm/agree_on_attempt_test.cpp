#include "comm/bootstrap/agree_on_attempt.h"

#include <doctest/doctest.h>

#include <functional>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/error.h"
#include "comm/bootstrap/key_value_store.h"

namespace zeroth::comm::agree_on_attempt_test {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kLong{60};

struct Outcome {
  AgreedAttempt attempt;
  std::string error;
};

Outcome member(c10d::Store& store, const AttemptMember& me, milliseconds limit = kLong) {
  try {
    return {agree_on_attempt(store, me, limit), ""};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

// Each rank with its restarts; the first ones come later by so much.
std::vector<Outcome> run_attempt(c10d::Store& store, const std::vector<int64_t>& restarts,
                                 milliseconds later = milliseconds(0), int late = 0) {
  std::vector<Outcome> outcomes(restarts.size());
  std::vector<std::jthread> ranks;
  for (size_t rank = 0; rank < restarts.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      if (static_cast<int>(rank) < late) std::this_thread::sleep_for(later);
      outcomes[rank] = member(
          store, {static_cast<int>(rank), static_cast<int>(restarts.size()), restarts[rank]});
    });
  }
  ranks.clear();
  return outcomes;
}

void check_same(const std::vector<Outcome>& outcomes, int64_t index, int64_t restarts) {
  for (const Outcome& one : outcomes) {
    CHECK(one.error.empty());
    CHECK(one.attempt.index == index);
    CHECK(one.attempt.restarts == restarts);
    CHECK(one.attempt.run == outcomes.front().attempt.run);
    CHECK(one.attempt.prefix == outcomes.front().attempt.prefix);
  }
  CHECK(outcomes.front().attempt.run.size() == 16);
}

}  // namespace

TEST_CASE("ranks whose agents count differently agree, and no two rounds share a key") {
  c10d::HashStore store;
  std::set<std::string> prefixes, runs;
  // As torchrun has it: an agent that comes or goes is no restart, and each counts its own.
  const std::vector<std::vector<int64_t>> attempts = {{0, 0, 0}, {0, 0}, {0, 1}, {1, 0, 0, 0}, {1}};
  for (size_t index = 0; index < attempts.size(); ++index) {
    const auto outcomes = run_attempt(store, attempts[index]);
    check_same(outcomes, static_cast<int64_t>(index), index < 2 ? 0 : 1);
    prefixes.insert(outcomes.front().attempt.prefix);
    runs.insert(outcomes.front().attempt.run);
  }
  CHECK(prefixes.size() == attempts.size());
  CHECK(runs.size() == 1);
}

TEST_CASE("whoever comes first: what the ranks of a round before left misleads nobody") {
  for (const int late : {0, 1, 2}) {
    c10d::HashStore store;
    check_same(run_attempt(store, {0, 0, 0}), 0, 0);
    // Rank 0 late, or rank 0 and another one; then all but the first.
    check_same(run_attempt(store, {0, 0, 0}, milliseconds(60), late), 1, 0);
    std::vector<Outcome> outcomes(3);
    std::jthread first([&] { outcomes[0] = member(store, {0, 3, 0}); });
    std::this_thread::sleep_for(milliseconds(60));  // it has listed who was there before
    std::jthread second([&] { outcomes[1] = member(store, {1, 3, 0}); });
    outcomes[2] = member(store, {2, 3, 0});
    first.join();
    second.join();
    check_same(outcomes, 2, 0);
  }
}

TEST_CASE("ranks sign what they leave where the run has a secret") {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  const auto store = make_signed_store(plain, "a secret of the run", "run");
  check_same(run_attempt(*store, {0, 1}), 0, 1);
  check_same(run_attempt(*store, {0, 1}), 1, 1);
  plain->set("zeroth/join/1", {'x'});  // a stranger
  const Outcome refused = member(*store, {0, 2, 0}, milliseconds(200));
  CHECK(refused.error.find("was not written with this rank's secret") != std::string::npos);
}

TEST_CASE("a rank that does not come is named") {
  c10d::HashStore store;
  const Outcome alone = member(store, {0, 3, 0}, milliseconds(50));
  CHECK(alone.error.find("rank 0 of 3: rank 1, 2 did not join: timed out after ") == 0);
  const Outcome other = member(store, {2, 3, 0}, milliseconds(50));
  CHECK(other.error.find("rank 2 of 3: rank 1 did not join: ") == 0);
}

TEST_CASE("a rank 0 that another one has replaced ends, and the other ranks go with the new one") {
  c10d::HashStore store;
  Outcome old;
  std::jthread replaced([&] { old = member(store, {0, 2, 0}); });
  const std::vector<uint8_t> former = store.get("zeroth/join/0");
  std::vector<Outcome> outcomes(2);
  std::jthread fresh([&] { outcomes[0] = member(store, {0, 2, 1}); });
  while (store.get("zeroth/join/0") == former) std::this_thread::sleep_for(milliseconds(1));
  outcomes[1] = member(store, {1, 2, 0});
  fresh.join();
  replaced.join();
  check_same(outcomes, 0, 1);
  CHECK(old.error == "another rank 0 has replaced this one: its attempt is over");
}

}  // namespace zeroth::comm::agree_on_attempt_test
