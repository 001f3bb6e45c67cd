#include "comm/groups/peer_reports.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

namespace zeroth::comm::peer_reports_test {
namespace {

using std::chrono::milliseconds;

const Nodes kHosts = {{"a", {0, 1}}, {"b", {2, 3}}};

PeerReports reports_of(const c10::intrusive_ptr<c10d::Store>& store, int rank) {
  return {store, rank, kHosts, milliseconds(40'000)};
}

}  // namespace

TEST_CASE("a wait is told after 5 s and taken back at its end") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  PeerReports two = reports_of(store, 2), zero = reports_of(store, 0);
  int asked = 0;
  const auto text = [&] {
    ++asked;
    return std::string("all-reduce of gradients");
  };
  two.report_wait(milliseconds(4'999), text);
  CHECK(asked == 0);
  CHECK_FALSE(store->check({"told/2"}));
  two.report_wait(milliseconds(5'000), text);
  two.report_wait(milliseconds(5'200), text);
  CHECK(asked == 1);
  CHECK(zero.reports_from({2}) ==
        "rank 2 on b reports: waiting for 5.0 s: all-reduce of gradients");
  two.report_wait(milliseconds(10'100), text);
  CHECK(asked == 2);
  two.clear();
  CHECK(zero.reports_from({2}) == "rank 2 on b reports nothing");
}

TEST_CASE("for a rank that tells nothing those of its machine speak") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  PeerReports zero = reports_of(store, 0), two = reports_of(store, 2);
  two.report_failure("missing: rank 3\n\x1b[31m");
  CHECK(zero.reports_from({3}) ==
        "rank 2 on b reports: missing: rank 3\\n\\u001b[31m; rank 3 on b reports nothing");
}

TEST_CASE("a long text is cut") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const std::string huge(1 << 20, 'x');
  store->set("told/1", std::vector<uint8_t>(huge.begin(), huge.end()));
  CHECK(reports_of(store, 0).reports_from({1}).size() < 2'000);
}

}  // namespace zeroth::comm::peer_reports_test
