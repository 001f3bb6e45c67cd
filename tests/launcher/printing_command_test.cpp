#include "launcher/run/printing_command.h"

#include <doctest/doctest.h>

namespace zeroth::launcher {

TEST_CASE(
    "finetune's help is one rank's, wherever it stands; another program's where it is alone") {
  CHECK(printing_command({"bin/finetune", "--model", "m", "--help"}).one_rank);
  CHECK(printing_command({"finetune", "-h"}).one_rank);
  CHECK(printing_command({"./mine", "--version"}).one_rank);
  CHECK_FALSE(printing_command({"./mine", "-h", "128"}).one_rank);
  CHECK_FALSE(printing_command({"finetune", "--model", "--helpful"}).one_rank);
  CHECK_FALSE(printing_command({"--help"}).one_rank);
}

TEST_CASE("only finetune's configuration goes without the ranks' numbers") {
  CHECK(printing_command({"finetune", "--print-config"}).bare_lines);
  CHECK(printing_command({"finetune", "--inspect-samples", "2"}).bare_lines);
  CHECK(printing_command({"finetune", "--inspect-samples=2"}).output_is_all);
  CHECK_FALSE(printing_command({"mine", "--inspect-samples", "2"}).output_is_all);
  CHECK_FALSE(printing_command({"mine", "--print-config"}).bare_lines);
  CHECK_FALSE(printing_command({"finetune", "--model", "m"}).bare_lines);
}

TEST_CASE("what only prints has failed without its output") {
  CHECK(printing_command({"mine", "x", "-h"}).output_is_all);
  CHECK(printing_command({"mine", "--print-config"}).output_is_all);
  CHECK(printing_command({"finetune", "--eval-only"}).output_is_all);
  CHECK_FALSE(printing_command({"finetune", "--eval-only", "--metrics=m"}).output_is_all);
  CHECK_FALSE(printing_command({"mine", "--eval-only"}).output_is_all);
  CHECK_FALSE(printing_command({"finetune"}).output_is_all);
}

}  // namespace zeroth::launcher
