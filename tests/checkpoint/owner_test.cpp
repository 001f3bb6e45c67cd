#include "checkpoint/owner.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <set>
#include <thread>

#include "checkpoint/posix_file_system.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::owner_test {

TEST_CASE("each owner has a larger epoch, and those before it notice") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  const Owner first = Owner::claim(file_system, "first");
  CHECK(first.generation() == 1);
  first.check();
  const Owner second = Owner::claim(file_system, "second");
  CHECK(second.generation() == 2);
  second.check();
  CHECK(message_of<Error>([&] { first.check(); }) ==
        "/fake now belongs to another run (generation 2: second; this run has 1): nothing is saved "
        "there");
  CHECK(names_in(*file_system) == std::vector<std::string>{".owner-2"});
  file_system->remove_file(".owner-2");
  CHECK(message_of<Error>([&] { second.check(); }) ==
        "/fake has lost .owner-2: another process removes its files");
}

TEST_CASE("an owner whose words are missing counts all the same") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  const Owner first = Owner::claim(file_system, "first");
  (void)file_system->create(".owner-7", 0);
  CHECK(message_of<Error>([&] { first.check(); }) ==
        "/fake now belongs to another run (generation 7; this run has 1): nothing is saved there");
  CHECK(Owner::claim(file_system, "").generation() == 8);
}

TEST_CASE(
    "of owners that come at the same time each has an epoch of its own, and one is the last") {
  const TempFolder directory;
  std::vector<std::optional<Owner>> owners(8);
  {
    std::vector<std::jthread> threads;
    for (auto& owner : owners) {
      threads.emplace_back([&] {
        owner = Owner::claim(PosixFileSystem::make(directory.path()), describe_this_process());
      });
    }
  }
  std::set<int64_t> generations;
  int still = 0;
  for (const auto& owner : owners) {
    generations.insert(owner->generation());
    still += message_of<Error>([&] { owner->check(); }) == "no exception" ? 1 : 0;
  }
  CHECK(generations.size() == owners.size());
  CHECK(still == 1);
}

TEST_CASE("a folder that cannot be taken is an error") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  file_system->set_fault(FaultyFileSystem::Fault{1, FaultyFileSystem::Fault::Kind::kError, EROFS});
  CHECK(message_of<Error>([&] { (void)Owner::claim(file_system, "x"); }) ==
        "/fake/.owner-1: create failed: Read-only file system");
}

TEST_CASE("a process says who and where it is, and since when") {
  CHECK(describe_this_process().starts_with(fmt::format("process {} on ", ::getpid())));
  CHECK(describe_this_process().ends_with(" UTC"));
}

TEST_CASE("owner_number: a number that no owner can have is nobody's, and the last one is told") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  for (const char* const joke : {".owner-9223372036854775807", ".owner-1000000000000001"}) {
    write_text(*file_system, joke, "x");
  }
  CHECK(Owner::claim(file_system, "first").generation() == 1);
  CHECK(Owner::claim(file_system, "second").generation() == 2);
  write_text(*file_system, ".owner-1000000000000000", "x");
  CHECK(message_of<Error>([&] { (void)Owner::claim(file_system, "third"); }) ==
        "/fake cannot have another owner: the generation of .owner-1000000000000000 is "
        "1000000000000000, the maximum. Move that out of the folder while no run saves there.");
  CHECK(exists(*file_system, "", ".owner-9223372036854775807"));  // no run removes it
}

TEST_CASE(
    "owner_number: checkpoints that were copied without their owner's file have one after them") {
  const auto file_system = three_saves();
  SingleRankGroup one;
  {
    Saver again(file_system, one, {.run_id = "run", .keep = 0});
    save(again, one, 16, 16);
  }
  file_system->remove_file(".owner-2");
  Saver third(file_system, one, {.run_id = "run", .keep = 0});
  CHECK(third.generation() == 3);
  save(third, one, 6, 6);
  CHECK(load_newest(file_system) == 6);
}

}  // namespace zeroth::checkpoint::owner_test
