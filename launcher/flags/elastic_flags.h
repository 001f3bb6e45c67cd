// Flags for runs that survive the loss of a rank or a node.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace zeroth::launcher {

struct NodeRange {
  int min = 1;
  int max = 0;  // 0: as many as the hostfile has at the start
  bool operator==(const NodeRange&) const = default;
};

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
