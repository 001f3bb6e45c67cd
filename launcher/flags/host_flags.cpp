#include "launcher/flags/host_flags.h"

#include <CLI/CLI.hpp>
#include <climits>

#include "base/text/printable.h"
#include "launcher/flags/cli.h"

namespace zeroth::launcher {

void add_host_flags(CLI::App& app, HostOptions& options) {
  app.option_defaults()->group("Several machines");
  app.add_option("-H,--hostfile", options.hostfile,
                 "File with one host per line, such as 'worker-0 slots=8' (default: /job/hostfile, "
                 "if it exists; else only this machine)")
      ->option_text("FILE");
  app.add_option("--num_nodes", options.num_nodes, "Use only the first N hosts")->option_text("N");
  app.add_option("--launcher", options.launcher,
                 "How to reach hosts: pdsh (default, if installed), ssh (default otherwise), "
                 "openmpi, mpich, impi or slurm")
      ->option_text("LAUNCHER");
  app.add_option(
         "--launcher_args", options.launcher_args,
         "Additional arguments for --launcher, in one word; quotes group them as in a shell")
      ->option_text("ARGS");
  app.add_option("--ssh_port", options.ssh_port, "Port of ssh on the hosts")->option_text("PORT");
  app.add_flag("--no_ssh", options.no_ssh,
               "Do not connect to hosts: zeroth is started on each manually, with --node_rank and "
               "--master_addr");
  app.add_option("--node_rank", options.node_rank,
                 "With --no_ssh: which host of the hostfile this machine is, from 0")
      ->option_text("N");
  app.add_flag("--no_ssh_check", options.no_ssh_check,
               "No effect: hosts are not checked beforehand");
  app.add_flag("--force_multi", options.force_multi,
               "Start an agent even if the only host is this machine");
}

void check_host_values(const HostOptions& options) {
  if (options.hostfile && options.hostfile->size() >= PATH_MAX)
    throw UsageError("--hostfile {}: a path has at most {} bytes", shortened(*options.hostfile),
                     PATH_MAX - 1);
  if (options.num_nodes && *options.num_nodes < 1)
    throw UsageError("--num_nodes {}: at least one host is needed", *options.num_nodes);
  if (options.node_rank && *options.node_rank < 0)
    throw UsageError("--node_rank {}: hosts are counted from 0", *options.node_rank);
  if (options.ssh_port && (*options.ssh_port < 1 || *options.ssh_port > 65535))
    throw UsageError("--ssh_port {}: a port lies between 1 and 65535", *options.ssh_port);
  if (options.no_ssh && options.force_multi)
    throw UsageError("--no_ssh and --force_multi contradict each other");
}

}  // namespace zeroth::launcher
