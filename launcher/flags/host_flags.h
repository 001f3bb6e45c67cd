// Flags for several nodes, spelled as in DeepSpeed's launcher.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace zeroth::launcher {

struct HostOptions {
  std::optional<std::string> hostfile;  // unset: /job/hostfile, if it exists
  std::optional<int> num_nodes;         // number of first hosts to use; unset: all
  std::optional<int> node_rank;         // with no_ssh: index of this machine in the hostfile
  bool no_ssh = false;                  // a person starts zeroth on each node
  bool no_ssh_check = false;            // no effect: hosts are not tested beforehand
  std::optional<int> ssh_port;          // unset: ssh's default
  std::optional<std::string> launcher;  // backend that reaches nodes; unset: pdsh or ssh
  std::string launcher_args;  // additional arguments of the backend, in POSIX shell syntax
  bool force_multi = false;   // uses an agent even if this machine is the only host
};

void add_host_flags(CLI::App& app, HostOptions& options);

// Validates the options. Throws UsageError.
void check_host_values(const HostOptions& options);

}  // namespace zeroth::launcher
