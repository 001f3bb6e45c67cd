#include "launcher/flags/foreign_flags.h"

#include <doctest/doctest.h>

#include "launcher/flags/cli.h"

namespace zeroth::launcher::foreign_flags_test {
namespace {

using Words = std::vector<std::string>;

std::string error_of(Words words) {
  words.push_back("prog");
  try {
    parse_command_line(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("flags that change nothing here are taken with a note that says why") {
  const LaunchOptions options = parse_command_line({"--no_python", "--no_local_rank", "prog"});
  CHECK(options.command == Words{"prog"});
  REQUIRE(options.notes.size() == 2);
  for (const std::string& note : options.notes)
    CHECK(note.find(" has no effect: ") != std::string::npos);
}

TEST_CASE("flags that would change something are refused with what to do instead") {
  CHECK(error_of({"--module"}).find("zeroth python3 -m MODULE") != std::string::npos);
  CHECK(error_of({"--venv_script", "x"}).find("zeroth VENV/bin/python3 ...") != std::string::npos);
  CHECK(error_of({"--autotuning", "tune"}).find("there is no tuner") != std::string::npos);
  CHECK(error_of({"--nnodes=1:4"}).find("for MIN:MAX use --elastic") != std::string::npos);
  CHECK(error_of({"--nproc_per_node=2"}).find("--num_gpus") != std::string::npos);
}

TEST_CASE("--num_nodes and a filter of slots are refused together, as by DeepSpeed") {
  for (const char* filter : {"--include", "--exclude"})
    CHECK(error_of({"--num_nodes=1", filter, "localhost:0"}) ==
          "--num_nodes and --include or --exclude cannot be combined");
}

TEST_CASE("all refusals come together") {
  CHECK(error_of({"--module", "--autotuning=run"}).find("--autotuning: ") != std::string::npos);
  CHECK(error_of({"--module", "--autotuning=run"}).find("--module: ") != std::string::npos);
}

TEST_CASE("every flag of DeepSpeed's launcher is known") {
  for (const char* flag : {"--hostfile",
                           "--include",
                           "--exclude",
                           "--num_nodes",
                           "--num_gpus",
                           "--num_accelerators",
                           "--master_port",
                           "--master_addr",
                           "--node_rank",
                           "--launcher",
                           "--launcher_args",
                           "--module",
                           "--no_python",
                           "--no_local_rank",
                           "--no_ssh",
                           "--no_ssh_check",
                           "--force_multi",
                           "--save_pid",
                           "--enable_each_rank_log",
                           "--autotuning",
                           "--bind_cores_to_rank",
                           "--bind_core_list",
                           "--ssh_port",
                           "--venv_script",
                           "--log_level",
                           "-H",
                           "-i",
                           "-e",
                           "-q",
                           "--quiet"}) {
    CAPTURE(flag);
    CHECK(error_of({flag, "1"}).find("unknown flag") == std::string::npos);
  }
}

}  // namespace zeroth::launcher::foreign_flags_test
