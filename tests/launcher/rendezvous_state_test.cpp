#include "launcher/cluster/rendezvous_state.h"

#include <doctest/doctest.h>

namespace zeroth::launcher::rendezvous_state_test {
namespace {

using std::chrono::milliseconds;

// Of a run on two to four hosts, with a last call of 30 s and a patience of 600 s.
RendezvousAction step(int num_usable, int num_pending, int waited_s, int since_enough_s) {
  return next_action({2, 4},
                     {.num_usable = num_usable,
                      .num_pending = num_pending,
                      .waited = milliseconds(1000 * waited_s),
                      .since_quorum = milliseconds(1000 * since_enough_s)},
                     milliseconds(30'000), milliseconds(600'000));
}

}  // namespace

TEST_CASE("a round starts at once with all hosts, or when nobody is awaited") {
  CHECK(step(4, 0, 0, 0) == RendezvousAction::kStart);
  CHECK(step(4, 3, 0, 0) == RendezvousAction::kStart);
  CHECK(step(6, 0, 0, 0) == RendezvousAction::kStart);  // two of them are spares
  CHECK(step(2, 0, 0, 0) == RendezvousAction::kStart);
}

TEST_CASE("with enough hosts the others have a last call") {
  CHECK(step(2, 1, 29, 29) == RendezvousAction::kWait);
  CHECK(step(3, 1, 100, 29) == RendezvousAction::kWait);
  CHECK(step(3, 1, 100, 30) == RendezvousAction::kStart);
}

TEST_CASE("too few ranks for one copy of the model are waited for, not for ever") {
  const auto step = [](int num_usable, int waited_s) {
    return next_action(
        {1, 3},
        {.num_usable = num_usable, .has_ranks = false, .waited = milliseconds(1000 * waited_s)},
        milliseconds(30'000), milliseconds(600'000));
  };
  CHECK(step(2, 599) == RendezvousAction::kWait);
  CHECK(step(2, 600) == RendezvousAction::kGiveUp);
  CHECK(step(3, 599) == RendezvousAction::kWait);  // a host with more ranks may come back
  CHECK(step(3, 600) == RendezvousAction::kGiveUp);
}

TEST_CASE("an attempt has the largest multiple of the ranks that one copy of the model needs") {
  using Ranks = std::vector<int>;
  CHECK(assign_ranks({2, 3}, {}) == Ranks{2, 3});
  CHECK(assign_ranks({2, 2}, {.pipeline = 2}) == Ranks{2, 2});
  CHECK(assign_ranks({2, 1}, {.pipeline = 2}) == Ranks{2, 0});
  CHECK(assign_ranks({1, 2}, {.pipeline = 2}) == Ranks{1, 1});
  CHECK(assign_ranks({1, 1, 8}, {.pipeline = 4}) == Ranks{1, 1, 6});
  CHECK(assign_ranks({3}, {.pipeline = 4}) == Ranks{0});
  CHECK(assign_ranks({}, {.pipeline = 4}).empty());
  // Tensor-parallel groups of two stay inside nodes, unless a copy would be lost.
  CHECK(assign_ranks({3, 4}, {.tensor = 2}) == Ranks{2, 4});
  CHECK(assign_ranks({3, 3}, {.tensor = 2}) == Ranks{3, 3});
  CHECK(assign_ranks({3, 6}, {.pipeline = 2, .tensor = 2}) == Ranks{2, 6});
}

TEST_CASE("too few hosts are waited for, not for ever") {
  CHECK(step(1, 0, 0, 0) == RendezvousAction::kWait);
  CHECK(step(0, 3, 599, 0) == RendezvousAction::kWait);
  CHECK(step(1, 3, 600, 0) == RendezvousAction::kGiveUp);
}

}  // namespace zeroth::launcher::rendezvous_state_test
