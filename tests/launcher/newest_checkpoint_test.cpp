#include "launcher/run/newest_checkpoint.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/launcher/launched_process.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher {

TEST_CASE("a flag's value is the last one that is given, in either form") {
  const std::vector<std::string_view> flags = {"--output", "--output_dir"};
  CHECK(find_argument({"finetune", "--output", "a", "--output_dir=b"}, flags) == "b");
  CHECK(find_argument({"finetune", "--outputs", "a", "--output"}, flags).empty());
  CHECK(find_argument({"--output", "a"}, flags).empty());
  CHECK(find_argument({}, flags).empty());
}

TEST_CASE("what has no output, or none that holds a checkpoint, has saved nothing") {
  const TempFolder directory;
  CHECK(newest_checkpoint({"prog"}).empty());
  CHECK(newest_checkpoint({"finetune", "--output", directory / "none"}).empty());
  CHECK(newest_checkpoint({"finetune", "--output", directory.path()}).empty());
  CHECK(newest_checkpoint({"finetune", directory / "missing.json"}).empty());
  CHECK(newest_checkpoint({"finetune", directory.write("bad.json", "{")}).empty());
}

TEST_CASE("another checkpoint is progress, none that can be read is not") {
  CHECK(has_new_checkpoint("", "step-2 1.1"));
  CHECK(has_new_checkpoint("step-2 1.1", "step-4 1.2"));
  CHECK_FALSE(has_new_checkpoint("step-2 1.1", "step-2 1.1"));
  CHECK_FALSE(has_new_checkpoint("step-2 1.1", ""));
}

}  // namespace zeroth::launcher
