#include "offload/staging_slots.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "tests/support/late_copies.h"

namespace zeroth::offload {

using testing::late_link;

TEST_CASE("a slot that is free is taken again, viewed as what is asked for") {
  const auto link = late_link();
  StagingSlots slots(*link, torch::kCPU, 4);
  StagingSlots::Slot slot = slots.take(100);
  const void* memory = slot.memory.data_ptr();
  CHECK(slot.view(25, torch::kFloat).numel() == 25);
  slots.give(std::move(slot));
  const StagingSlots::Slot again = slots.take(50);
  CHECK(again.memory.data_ptr() == memory);
  CHECK(again.view(25, torch::kHalf).nbytes() == 50);
  CHECK(slots.count() == 1);
}

TEST_CASE("of the slots that are large enough the smallest is taken") {
  const auto link = late_link();
  StagingSlots slots(*link, torch::kCPU, 3);
  StagingSlots::Slot large = slots.take(4096), small = slots.take(64), middle = slots.take(512);
  slots.give(std::move(large));
  slots.give(std::move(small));
  slots.give(std::move(middle));
  CHECK(slots.take(100).memory.numel() == 512);
  CHECK(slots.take(64).memory.numel() == 64);
  CHECK(slots.take(64).memory.numel() == 4096);
  CHECK(slots.count() == 3);
}

TEST_CASE("slots under a copy are taken in turn once there are as many as may be") {
  const auto link = late_link();
  const torch::Tensor source = torch::ones({8});
  StagingSlots slots(*link, torch::kCPU, 2);
  std::vector<void*> used;
  for (int i = 0; i < 6; ++i) {
    StagingSlots::Slot slot = slots.take(32);
    used.push_back(slot.memory.data_ptr());
    slot.free = link->copies->copy(slot.view(8, torch::kFloat), source, {slot.free});
    slots.give(std::move(slot));
  }
  CHECK(slots.count() == 2);
  CHECK(used[0] != used[1]);
  for (size_t i = 2; i < used.size(); ++i) CHECK(used[i] == used[i - 2]);
}

TEST_CASE("slots that are all taken grow in number, slots too small in size") {
  const auto link = late_link();
  StagingSlots slots(*link, torch::kCPU, 1);
  StagingSlots::Slot first = slots.take(16);
  StagingSlots::Slot second = slots.take(16);
  CHECK(slots.count() == 2);
  slots.give(std::move(first));
  slots.give(std::move(second));
  const StagingSlots::Slot large = slots.take(4096);
  CHECK(large.memory.numel() == 4096);
  CHECK(slots.count() == 2);
  CHECK(slots.bytes() == 4096 + 16);
}

TEST_CASE("slots made when the largest size is known are never replaced") {
  const auto link = late_link();
  StagingSlots slots(*link, torch::kCPU, 2);
  slots.expect(4096);
  slots.expect(64);
  for (const int64_t bytes : {16, 4096, 64, 4096}) {
    StagingSlots::Slot slot = slots.take(bytes);
    CHECK(slot.memory.numel() == 4096);
    slots.give(std::move(slot));
  }
  CHECK(slots.count() == 1);
}

TEST_CASE("a slot too small is given up only when its copy has ended") {
  const auto link = late_link();
  StagingSlots slots(*link, torch::kCPU, 1);
  const torch::Tensor target = torch::zeros({4});
  StagingSlots::Slot slot = slots.take(16);
  slot.view(4, torch::kFloat).fill_(7);
  slot.free = link->copies->copy(target, slot.view(4, torch::kFloat), {});
  slots.give(std::move(slot));
  slots.take(4096);
  CHECK(at::equal(target, torch::full({4}, 7.0)));
}

}  // namespace zeroth::offload
