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

TEST_CASE("too few hosts are waited for, not for ever") {
  CHECK(step(1, 0, 0, 0) == RendezvousAction::kWait);
  CHECK(step(0, 3, 599, 0) == RendezvousAction::kWait);
  CHECK(step(1, 3, 600, 0) == RendezvousAction::kGiveUp);
}

}  // namespace zeroth::launcher::rendezvous_state_test
