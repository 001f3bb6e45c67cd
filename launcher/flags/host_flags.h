// Flags about several machines, spelled as DeepSpeed's launcher has them.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace zeroth::launcher {

struct HostOptions {
  std::optional<std::string> hostfile;  // unset: /job/hostfile, where there is one
  std::optional<int> num_nodes;         // the first so many hosts; unset: all
  std::optional<int> node_rank;         // with no_ssh: which host of the hostfile this machine is
  bool no_ssh = false;                  // a person starts zeroth on each host
  bool no_ssh_check = false;            // changes nothing: hosts are not tried beforehand
  std::optional<int> ssh_port;          // unset: ssh's own choice
  std::optional<std::string> launcher;  // how hosts are reached; unset: pdsh or ssh
  std::string launcher_args;            // more words for it, grouped as a POSIX shell does
  bool force_multi = false;             // an agent also where the only host is this machine
};

void add_host_flags(CLI::App& app, HostOptions& options);

// Throws UsageError.
void check_host_values(const HostOptions& options);

}  // namespace zeroth::launcher
