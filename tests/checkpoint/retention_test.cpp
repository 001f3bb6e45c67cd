#include "checkpoint/retention.h"

#include <doctest/doctest.h>

#include "tests/checkpoint/fake_disk.h"
#include "tests/checkpoint/small_run.h"

namespace zeroth::checkpoint {
namespace {

using Names = std::vector<std::string>;

std::shared_ptr<FakeDisk> saves(const std::vector<int64_t>& steps) {
  auto disk = std::make_shared<FakeDisk>();
  OneRank one;
  Saver saver(disk, one, {.run_id = "run", .keep = 0});
  for (const int64_t step : steps) save(saver, one, step, step);
  return disk;
}

}  // namespace

TEST_CASE("the newest by attempt stay, and named ones; what is not complete is not counted") {
  const auto disk = saves({4, 8, 12, 6});
  CHECK(to_be_removed(*disk, {.newest = 2}) == Names{"step-8", "step-4"});
  CHECK(to_be_removed(*disk, {.newest = 2, .steps = {4}}) == Names{"step-8"});
  CHECK(to_be_removed(*disk, {.newest = 0}).empty());
  CHECK(to_be_removed(*disk, {.newest = 9}).empty());
  disk->bytes_of("step-6/zeroth/manifest.json").clear();
  CHECK(to_be_removed(*disk, {.newest = 2}) == Names{"step-4"});
}

TEST_CASE("a checkpoint that is removed has another name before its first byte goes") {
  const auto disk = saves({4, 8});
  disk->set_fault({});
  remove_checkpoints(*disk, {"step-4"});
  REQUIRE(disk->log().size() > 3);
  CHECK(disk->log()[0] == "rename step-4 .trash-step-4");
  CHECK(disk->log()[1] == "fsync .");
  CHECK(disk->log()[2].starts_with("unlink .trash-step-4/"));
  CHECK(names_in(*disk) == Names{".owner-1", "latest", "step-8"});
}

TEST_CASE("what dead tries left goes, and what was about to be replaced gets its name back") {
  const auto disk = saves({4, 8, 12});
  disk->rename("step-8", ".old-step-8-1.9");  // its place is empty
  disk->make_folder(".old-step-12-1.8");      // its place is taken
  disk->make_folder(".tmp-step-16-1.4");
  write_text(*disk, ".tmp-step-16-1.4/x", "1");
  write_text(*disk, ".tmp-latest", "1");
  disk->make_folder(".trash-step-2");
  disk->make_folder("mine");
  const auto found = list_checkpoints(*disk);
  REQUIRE(found.size() == 3);
  CHECK(found[1].name == ".old-step-8-1.9");
  CHECK(found[1].complete());
  clear_leftovers(*disk);
  CHECK(names_in(*disk) == Names{".owner-1", "latest", "mine", "step-12", "step-4", "step-8"});
  CHECK(load_newest(disk) == 12);
}

}  // namespace zeroth::checkpoint
