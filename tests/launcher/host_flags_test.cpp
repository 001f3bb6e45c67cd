#include "launcher/flags/host_flags.h"

#include <doctest/doctest.h>

#include "launcher/flags/cli.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher::host_flags_test {
namespace {

using Words = std::vector<std::string>;

std::string error_of(Words words) {
  words.push_back("prog");
  return message_of<UsageError>([&] { parse_command_line(words); });
}

}  // namespace

TEST_CASE("every flag about hosts reaches its field") {
  const HostOptions none = parse_command_line({"prog"}).hosts;
  CHECK_FALSE(none.hostfile);
  CHECK_FALSE(none.num_nodes);
  CHECK_FALSE(none.launcher);
  const HostOptions all =
      parse_command_line({"-H", "hosts", "--num_nodes=2", "--node_rank", "1", "--no_ssh",
                          "--no_ssh_check", "--ssh_port=2222", "--launcher", "slurm",
                          "--launcher_args", "-v --comment 'two words'", "prog"})
          .hosts;
  CHECK(all.hostfile == "hosts");
  CHECK(all.num_nodes == 2);
  CHECK(all.node_rank == 1);
  CHECK(all.no_ssh);
  CHECK(all.no_ssh_check);
  CHECK(all.ssh_port == 2222);
  CHECK(all.launcher == "slurm");
  CHECK(all.launcher_args == "-v --comment 'two words'");
  CHECK(parse_command_line({"--force_multi", "prog"}).hosts.force_multi);
  CHECK(parse_command_line({"--hostfile=hosts", "prog"}).hosts.hostfile == "hosts");
  CHECK(parse_command_line({"--dry-run", "prog"}).dry_run);
}

TEST_CASE("an argument for the launcher of agents may begin with a dash") {
  CHECK(parse_command_line({"--launcher_args", "--oversubscribe", "prog"}).hosts.launcher_args ==
        "--oversubscribe");
  CHECK(parse_command_line({"--launcher_args", "--oversubscribe", "prog", "-x"}).command ==
        Words{"prog", "-x"});
}

TEST_CASE("values that cannot be are refused") {
  CHECK(error_of({"--hostfile", ""}) == "--hostfile needs a value (zeroth --help lists the flags)");
  CHECK(error_of({"--hostfile", std::string(10'000, 'x')}).find("... (100") != std::string::npos);
  CHECK(error_of({"--num_nodes=0"}) == "--num_nodes 0: at least one host is needed");
  CHECK(error_of({"--node_rank=-1"}) == "--node_rank -1: hosts are counted from 0");
  CHECK(error_of({"--ssh_port=0"}) == "--ssh_port 0: a port lies between 1 and 65535");
  CHECK(error_of({"--ssh_port=65536"}) == "--ssh_port 65536: a port lies between 1 and 65535");
  CHECK(error_of({"--node_rank=x"}).starts_with("--node_rank x: must be a whole number"));
}

}  // namespace zeroth::launcher::host_flags_test
