#include <doctest/doctest.h>

#include "base/error.h"
#include "launcher/commands/commands.h"

namespace zeroth::launcher::data_commands_test {

using Arguments = std::vector<std::string>;

TEST_CASE("inspect-data passes the flags of data on, with the number of samples and the format") {
  CHECK(inspect_data_arguments({"--model", "m", "--data", "d.jsonl"}) ==
        Arguments{"--model", "m", "--data", "d.jsonl", "--inspect-samples", "3"});
  CHECK(inspect_data_arguments({"--count", "7", "--model", "m"}) ==
        Arguments{"--model", "m", "--inspect-samples", "7"});
  CHECK(inspect_data_arguments({"--count=7", "--json", "--model", "m"}) ==
        Arguments{"--model", "m", "--inspect-samples", "7", "--inspect-format", "json"});
  CHECK(inspect_data_arguments({"--json", "--model", "m"}) ==
        Arguments{"--model", "m", "--inspect-samples", "100000000", "--inspect-format", "json"});
}

TEST_CASE("tokenize passes all flags on") {
  CHECK(tokenize_arguments({"--output", "p"}) == Arguments{"--output", "p", "--tokenize"});
}

TEST_CASE("merge names its three folders, and requires them") {
  CHECK(merge_arguments({"base", "adapter", "out", "--save-dtype", "bf16"}) ==
        Arguments{"--merge", "--model", "base", "--adapter", "adapter", "--output", "out",
                  "--save-dtype", "bf16"});
  CHECK(merge_arguments({"--help"}).empty());
  CHECK_THROWS_WITH_AS(merge_arguments({"base", "adapter"}), doctest::Contains("OUT"), UsageError);
  CHECK_THROWS_AS(merge_arguments({"base", "--overwrite", "adapter", "out"}), UsageError);
}

TEST_CASE("Without arguments, or for --help, both say what they do") {
  for (const Arguments& arguments : {Arguments{}, Arguments{"--help"}, Arguments{"--json", "-h"}}) {
    CHECK(inspect_data_arguments(arguments).empty());
    CHECK(tokenize_arguments(arguments).empty());
  }
  CHECK(data_command_help().find("zeroth tokenize --model DIR") != std::string::npos);
}

}  // namespace zeroth::launcher::data_commands_test
