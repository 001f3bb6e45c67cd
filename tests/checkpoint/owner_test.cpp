#include "checkpoint/owner.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <set>
#include <thread>

#include "checkpoint/real_disk.h"
#include "tests/checkpoint/fake_disk.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint {

TEST_CASE("each owner has a larger epoch, and those before it notice") {
  const auto disk = std::make_shared<FakeDisk>();
  const Owner first = Owner::take(disk, "first");
  CHECK(first.epoch() == 1);
  first.check();
  const Owner second = Owner::take(disk, "second");
  CHECK(second.epoch() == 2);
  second.check();
  CHECK(message_of<Error>([&] { first.check(); }) ==
        "/fake is another run's by now (epoch 2: second; this one has 1): nothing is saved there");
  CHECK(names_in(*disk) == std::vector<std::string>{".owner-2"});
  disk->remove_file(".owner-2");
  CHECK(message_of<Error>([&] { second.check(); }) ==
        "/fake has lost .owner-2: somebody removes what lies there");
}

TEST_CASE("an owner whose words are missing counts all the same") {
  const auto disk = std::make_shared<FakeDisk>();
  const Owner first = Owner::take(disk, "first");
  (void)disk->create(".owner-7", 0);
  CHECK(message_of<Error>([&] { first.check(); }) ==
        "/fake is another run's by now (epoch 7; this one has 1): nothing is saved there");
  CHECK(Owner::take(disk, "").epoch() == 8);
}

TEST_CASE(
    "of owners that come at the same time each has an epoch of its own, and one is the last") {
  const TempFolder folder;
  std::vector<std::optional<Owner>> owners(8);
  {
    std::vector<std::jthread> threads;
    for (auto& owner : owners) {
      threads.emplace_back(
          [&] { owner = Owner::take(RealDisk::make(folder.path()), this_process()); });
    }
  }
  std::set<int64_t> epochs;
  int still = 0;
  for (const auto& owner : owners) {
    epochs.insert(owner->epoch());
    still += message_of<Error>([&] { owner->check(); }) == "no exception" ? 1 : 0;
  }
  CHECK(epochs.size() == owners.size());
  CHECK(still == 1);
}

TEST_CASE("a folder that cannot be taken is an error") {
  const auto disk = std::make_shared<FakeDisk>();
  disk->set_fault(FakeDisk::Fault{1, FakeDisk::Fault::Kind::kError, EROFS});
  CHECK(message_of<Error>([&] { (void)Owner::take(disk, "x"); }) ==
        "/fake/.owner-1: create failed: Read-only file system");
}

TEST_CASE("a process says who and where it is, and since when") {
  CHECK(this_process().starts_with(fmt::format("process {} on ", ::getpid())));
  CHECK(this_process().ends_with(" UTC"));
}

TEST_CASE("owner_number: a number that no owner can have is nobody's, and the last one is told") {
  const auto disk = std::make_shared<FakeDisk>();
  for (const char* const joke : {".owner-9223372036854775807", ".owner-1000000000000001"}) {
    write_text(*disk, joke, "x");
  }
  CHECK(Owner::take(disk, "first").epoch() == 1);
  CHECK(Owner::take(disk, "second").epoch() == 2);
  write_text(*disk, ".owner-1000000000000000", "x");
  CHECK(message_of<Error>([&] { (void)Owner::take(disk, "third"); }) ==
        "/fake cannot have another owner: the epoch of .owner-1000000000000000 is "
        "1000000000000000, the largest that there can be. Move that out of the folder while no run "
        "saves there.");
  CHECK(holds(*disk, "", ".owner-9223372036854775807"));  // no run removes it
}

TEST_CASE(
    "owner_number: checkpoints that were copied without their owner's file have one after them") {
  const auto disk = three_saves();
  OneRank one;
  {
    Saver again(disk, one, {.run_id = "run", .keep = 0});
    save(again, one, 16, 16);
  }
  disk->remove_file(".owner-2");
  Saver third(disk, one, {.run_id = "run", .keep = 0});
  CHECK(third.epoch() == 3);
  save(third, one, 6, 6);
  CHECK(load_newest(disk) == 6);
}

}  // namespace zeroth::checkpoint
