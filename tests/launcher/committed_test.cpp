#include "launcher/run/committed.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/launcher/launched.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher {

TEST_CASE("a flag's value is the last one that is given, in either form") {
  const std::vector<std::string_view> flags = {"--output", "--output_dir"};
  CHECK(argument_of({"finetune", "--output", "a", "--output_dir=b"}, flags) == "b");
  CHECK(argument_of({"finetune", "--outputs", "a", "--output"}, flags).empty());
  CHECK(argument_of({"--output", "a"}, flags).empty());
  CHECK(argument_of({}, flags).empty());
}

TEST_CASE("what has no output, or none that holds a checkpoint, has saved nothing") {
  const TempFolder folder;
  CHECK(newest_checkpoint({"prog"}).empty());
  CHECK(newest_checkpoint({"finetune", "--output", folder / "none"}).empty());
  CHECK(newest_checkpoint({"finetune", "--output", folder.path()}).empty());
  CHECK(newest_checkpoint({"finetune", folder / "missing.json"}).empty());
  CHECK(newest_checkpoint({"finetune", folder.write("bad.json", "{")}).empty());
}

TEST_CASE("another checkpoint is progress, none that can be read is not") {
  CHECK(has_saved_more("", "step-2 1.1"));
  CHECK(has_saved_more("step-2 1.1", "step-4 1.2"));
  CHECK_FALSE(has_saved_more("step-2 1.1", "step-2 1.1"));
  CHECK_FALSE(has_saved_more("step-2 1.1", ""));
}

}  // namespace zeroth::launcher
