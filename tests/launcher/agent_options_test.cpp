#include "launcher/cluster/agent.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "base/error.h"
#include "launcher/machine/machine.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher::agent_options_test {
namespace {

using Words = std::vector<std::string>;

const std::string kSecret(64, 'a');

Lookup environment(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string take_from_file(const std::string& path) {
  AgentOptions options;
  options.secret_file = path;
  return consume_secret(options);
}

}  // namespace

TEST_CASE("an agent's command line names launcher, host and where the secret is") {
  const AgentOptions options = parse_agent_options(
      {"--launcher", "10.0.0.1:47,[::1]:48", "--node", "3", "--secret-stdin"}, environment({}));
  CHECK(options.launcher == "10.0.0.1:47,[::1]:48");
  CHECK(options.node == 3);
  CHECK(options.secret_on_stdin);
}

TEST_CASE("without --node the task's number is taken from MPI or Slurm") {
  const Words words = {"--launcher", "x", "--secret-env", "S"};
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
    CHECK(parse_agent_options(words, environment({{name, "5"}})).node == 5);
  CHECK(parse_agent_options(words,
                            environment({{"OMPI_COMM_WORLD_RANK", "1"}, {"SLURM_PROCID", "0"}}))
            .node == 1);
  CHECK_THROWS_WITH_AS(parse_agent_options(words, environment({})),
                       doctest::Contains("--node is not given"), UsageError);
  CHECK_THROWS_WITH_AS(parse_agent_options(words, environment({{"PMI_RANK", "x"}})),
                       "agent: PMI_RANK is 'x', not the index of a host", UsageError);
}

TEST_CASE("a command line that is not an agent's is refused") {
  const auto refuse = [](const Words& words, const char* why) {
    CHECK_THROWS_WITH_AS(parse_agent_options(words, environment({})), why, UsageError);
  };
  refuse({"--node", "0", "--secret-stdin"}, "agent: --launcher is missing");
  refuse({"--launcher"}, "agent: --launcher needs a value");
  refuse({"--launcher", "x", "--node", "-1", "--secret-stdin"},
         "agent: --node is '-1', not the index of a host");
  refuse({"--launcher", "x", "--node", "0"},
         "agent: exactly one of --secret-stdin, --secret-env and --secret-file is needed, not 0");
  refuse({"--launcher", "x", "--node", "0", "--secret-stdin", "--secret-file", "f"},
         "agent: exactly one of --secret-stdin, --secret-env and --secret-file is needed, not 2");
  refuse({"train"}, "agent: unknown flag 'train'");
}

TEST_CASE("a secret in a variable is gone from the environment once it is taken") {
  ::setenv("ZEROTH_TEST_SECRET", kSecret.c_str(), 1);
  AgentOptions options;
  options.secret_variable = "ZEROTH_TEST_SECRET";
  CHECK(consume_secret(options) == kSecret);
  CHECK_FALSE(read_variable("ZEROTH_TEST_SECRET"));
  CHECK_THROWS_WITH_AS(consume_secret(options), "--secret-env ZEROTH_TEST_SECRET: it is not set",
                       Error);
}

TEST_CASE("a secret's file is removed once it is taken, and refused where others may read it") {
  const TempFolder directory;
  const std::string path = directory.path() / "secret";
  std::ofstream(path) << kSecret << "\nmore\n";
  ::chmod(path.c_str(), 0640);
  CHECK_THROWS_WITH_AS(take_from_file(path),
                       doctest::Contains("accessible to other users (mode 640), expected 600"),
                       Error);
  CHECK(std::filesystem::exists(path));
  ::chmod(path.c_str(), 0600);
  const std::string link = directory.path() / "link";
  std::filesystem::create_symlink(path, link);
  CHECK_THROWS_AS(take_from_file(link), Error);
  CHECK(take_from_file(path) == kSecret);
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK_THROWS_WITH_AS(take_from_file(path), doctest::Contains("No such file"), Error);
  CHECK_THROWS_WITH_AS(take_from_file(directory.path()), doctest::Contains("not a file"), Error);
}

TEST_CASE("a secret that is too short to be one is refused") {
  const TempFolder directory;
  const std::string path = directory.path() / "secret";
  std::ofstream(path) << "short\n";
  ::chmod(path.c_str(), 0600);
  CHECK_THROWS_WITH_AS(take_from_file(path),
                       "the run's secret has 5 characters, expected 16 to 4096", Error);
}

}  // namespace zeroth::launcher::agent_options_test
