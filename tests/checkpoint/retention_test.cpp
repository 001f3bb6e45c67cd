#include "checkpoint/owner.h"

#include <doctest/doctest.h>

#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/small_run.h"

namespace zeroth::checkpoint::retention_test {
namespace {

using Names = std::vector<std::string>;

std::shared_ptr<FaultyFileSystem> saves(const std::vector<int64_t>& steps) {
  auto file_system = std::make_shared<FaultyFileSystem>();
  SingleRankGroup one;
  Saver saver(file_system, one, {.run_id = "run", .keep = 0});
  for (const int64_t step : steps) save(saver, one, step, step);
  return file_system;
}

}  // namespace

TEST_CASE("the newest by attempt stay, and named ones; what is not complete is not counted") {
  const auto file_system = saves({4, 8, 12, 6});
  CHECK(expired_checkpoints(*file_system, {.newest = 2}) == Names{"step-8", "step-4"});
  CHECK(expired_checkpoints(*file_system, {.newest = 2, .steps = {4}}) == Names{"step-8"});
  CHECK(expired_checkpoints(*file_system, {.newest = 0}).empty());
  CHECK(expired_checkpoints(*file_system, {.newest = 9}).empty());
  file_system->bytes_of("step-6/zeroth/manifest.json").clear();
  CHECK(expired_checkpoints(*file_system, {.newest = 2}) == Names{"step-4"});
}

TEST_CASE("a checkpoint that is removed has another name before its first byte goes") {
  const auto file_system = saves({4, 8});
  file_system->set_fault({});
  remove_checkpoints(*file_system, {"step-4"});
  REQUIRE(file_system->log().size() > 3);
  CHECK(file_system->log()[0] == "rename step-4 .trash-step-4");
  CHECK(file_system->log()[1] == "fsync .");
  CHECK(file_system->log()[2].starts_with("unlink .trash-step-4/"));
  CHECK(names_in(*file_system) == Names{".owner-1", "latest", "step-8"});
}

TEST_CASE("what dead tries left goes, and what was about to be replaced gets its name back") {
  const auto file_system = saves({4, 8, 12});
  file_system->rename("step-8", ".old-step-8-1.9");   // its place is empty
  file_system->create_directory(".old-step-12-1.8");  // its place is taken
  file_system->create_directory(".tmp-step-16-1.4");
  write_text(*file_system, ".tmp-step-16-1.4/x", "1");
  write_text(*file_system, ".tmp-latest", "1");
  file_system->create_directory(".trash-step-2");
  file_system->create_directory("mine");
  const auto found = list_checkpoints(*file_system);
  REQUIRE(found.size() == 3);
  CHECK(found[1].name == ".old-step-8-1.9");
  CHECK(found[1].complete());
  cleanup_leftovers(*file_system);
  CHECK(names_in(*file_system) ==
        Names{".owner-1", "latest", "mine", "step-12", "step-4", "step-8"});
  CHECK(load_newest(file_system) == 12);
}

}  // namespace zeroth::checkpoint::retention_test
