#include "comm/groups/stage_queue.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "comm/nodes/shared_segment.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm::stage_queue_test {
namespace {

// A collective that ends when the test says so, or when somebody waits for it.
struct Open final : CollectiveHandle::Impl {
  void wait() override {
    if (fails) throw Error("a peer is gone");
    ended = true;
  }
  bool ready() override { return ended || fails; }
  bool ended = false, fails = false;
};

struct Steps {
  std::shared_ptr<ProgressEngine> progress = std::make_shared<ProgressEngine>(
      Doorbells(SharedSegment::create_private(Doorbells::bytes(1)), 0, 0, 1));
  std::vector<std::string> began;
  std::vector<std::string> ended;
  std::vector<std::shared_ptr<Open>> open;

  StageStep step(HierarchicalStage stage, int after, const std::string& name) {
    return {stage, after,
            [this, name] {
              began.push_back(name);
              open.push_back(std::make_shared<Open>());
              return CollectiveHandle(open.back());
            },
            [this, name] { ended.push_back(name); }};
  }
  std::vector<StageStep> three(const std::string& name) {
    return {step(HierarchicalStage::kIntraFirst, -1, name + "1"),
            step(HierarchicalStage::kInterNode, 0, name + "2"),
            step(HierarchicalStage::kIntraLast, 1, name + "3")};
  }
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("first steps begin at once, later ones when those before them have ended") {
  Steps steps;
  StageQueue queue(steps.progress);
  const auto a = queue.issue(steps.three("a")), b = queue.issue(steps.three("b"));
  CHECK(steps.began == Names{"a1", "b1"});
  CHECK_FALSE(queue.can_work());
  steps.open[1]->ended = true;  // b1, but a1 comes first in each group
  CHECK_FALSE(queue.can_work());
  steps.open[0]->ended = true;
  while (queue.work()) {
  }
  CHECK(steps.began == Names{"a1", "b1", "a2", "b2"});
  CHECK(steps.ended == Names{"a1", "b1"});
  steps.open[3]->ended = true;
  CHECK_FALSE(queue.work());
  CHECK_FALSE(StageQueue::done(*a));
}

TEST_CASE("who waits for the later collective ends what is before it in the same groups") {
  Steps steps;
  StageQueue queue(steps.progress);
  const auto a = queue.issue(steps.three("a")), b = queue.issue(steps.three("b"));
  queue.complete(*b);
  CHECK(StageQueue::done(*b));
  CHECK(steps.began == Names{"a1", "b1", "a2", "b2", "a3", "b3"});
  queue.complete(*a);
  CHECK(StageQueue::done(*a));
  CHECK(steps.ended.size() == 6);
}

TEST_CASE("a collective with other groups does not wait for an earlier one") {
  Steps steps;
  StageQueue queue(steps.progress);
  const auto a = queue.issue(steps.three("a"));
  const auto b = queue.issue({steps.step(HierarchicalStage::kIntraLast, -1, "b")});
  CHECK(steps.began == Names{"a1"});  // b stands behind a3
  const auto c = queue.issue({steps.step(HierarchicalStage::kIntraFirst, -1, "c")});
  CHECK(steps.began == Names{"a1", "c"});
  queue.complete(*c);
  CHECK_FALSE(StageQueue::done(*a));
  queue.complete(*b);
  CHECK(steps.began == Names{"a1", "c", "a2", "a3", "b"});
}

TEST_CASE("after a step that failed every call fails with its words") {
  Steps steps;
  StageQueue queue(steps.progress);
  const auto a = queue.issue(steps.three("a"));
  steps.open[0]->fails = true;
  CHECK(message_of<Error>([&] { queue.complete(*a); }) == "a peer is gone");
  CHECK(message_of<Error>([&] { queue.complete(*a); }) == "a peer is gone");
  CHECK(message_of<Error>([&] { queue.issue(steps.three("b")); }) == "a peer is gone");
}

}  // namespace zeroth::comm::stage_queue_test
