// Flags for several nodes, spelled as in DeepSpeed's launcher, and for runs that survive the loss
// of a rank or a node.
#pragma once

#include <optional>
#include <string>
#include <string_view>

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

// These checks of the value of `flag` throw UsageError.
void check_port(std::optional<int> port, std::string_view flag);
void check_minimum(int min, std::optional<int> value, std::string_view flag,
                   std::string_view reason);
void check_path_length(std::string_view path, std::string_view flag);

// Validates the options. Throws UsageError.
void check_host_values(const HostOptions& options);

struct NodeRange {
  int min = 1;
  int max = 0;  // 0: as many as the hostfile has at the start
  bool operator==(const NodeRange&) const = default;
};

// Parses "3" or "1:3", numbers from 1 to `limit`; empty: it is another text. The minimum may exceed
// the maximum.
std::optional<NodeRange> parse_node_range(std::string_view text, int limit);

struct ElasticOptions {
  std::optional<NodeRange> hosts = {};   // number of nodes; unset: that of the start
  std::optional<int> max_restarts = {};  // after failures; unset: 3 if elastic, else 0
  int wait_seconds = 600;                // for a quorum of nodes
  std::optional<int> requeue_code = {};  // unset: 75 if elastic, else none
  std::optional<int> join_port = {};     // port at which nodes join by themselves; unset: none
  std::string join = {};  // ADDRESS:PORT of the run that this machine joins; empty: none

  // DeepSpeed's flags for elasticity; check_elastic_values converts them to `hosts`.
  bool elastic_training = false;
  std::optional<int> min_nodes = {};
  std::optional<int> max_nodes = {};

  int effective_max_restarts() const { return max_restarts.value_or(hosts ? 3 : 0); }
  // Returns the exit code that means: saved, restart me. The default is EX_TEMPFAIL of sysexits.h.
  std::optional<int> effective_requeue_code() const {
    return requeue_code || !hosts ? requeue_code : std::optional(75);
  }
};

void add_elastic_flags(CLI::App& app, ElasticOptions& options);

// Validates the options and converts DeepSpeed's. Throws UsageError.
void check_elastic_values(ElasticOptions& options);

}  // namespace zeroth::launcher
