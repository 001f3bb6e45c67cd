#include "launcher/run/printing_command.h"

#include <doctest/doctest.h>

namespace zeroth::launcher {

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

}  // namespace zeroth::launcher
