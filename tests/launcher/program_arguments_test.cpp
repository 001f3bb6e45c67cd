#include "launcher/run/program_arguments.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/launcher/launched_process.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher::program_arguments_test {

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

TEST_CASE(
    "finetune's help is one rank's, wherever it stands; another program's where it is alone") {
  CHECK(printing_command({"bin/finetune", "--model", "m", "--help"}).single_rank);
  CHECK(printing_command({"finetune", "-h"}).single_rank);
  CHECK(printing_command({"./mine", "--version"}).single_rank);
  CHECK_FALSE(printing_command({"./mine", "-h", "128"}).single_rank);
  CHECK_FALSE(printing_command({"finetune", "--model", "--helpful"}).single_rank);
  CHECK_FALSE(printing_command({"--help"}).single_rank);
}

TEST_CASE("only finetune's configuration goes without the ranks' numbers") {
  CHECK(printing_command({"finetune", "--print-config"}).unprefixed_lines);
  CHECK(printing_command({"finetune", "--inspect-samples", "2"}).unprefixed_lines);
  CHECK(printing_command({"finetune", "--inspect-samples=2"}).output_required);
  CHECK_FALSE(printing_command({"mine", "--inspect-samples", "2"}).output_required);
  CHECK_FALSE(printing_command({"mine", "--print-config"}).unprefixed_lines);
  CHECK_FALSE(printing_command({"finetune", "--model", "m"}).unprefixed_lines);
}

TEST_CASE("what only prints has failed without its output") {
  CHECK(printing_command({"mine", "x", "-h"}).output_required);
  CHECK(printing_command({"mine", "--print-config"}).output_required);
  CHECK(printing_command({"finetune", "--eval-only"}).output_required);
  CHECK_FALSE(printing_command({"finetune", "--eval-only", "--metrics=m"}).output_required);
  CHECK_FALSE(printing_command({"mine", "--eval-only"}).output_required);
  CHECK_FALSE(printing_command({"finetune"}).output_required);
}

}  // namespace zeroth::launcher::program_arguments_test
