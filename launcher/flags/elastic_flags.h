// Flags about runs that outlive the loss of a rank or a host.
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
  std::optional<NodeRange> hosts = {};  // how many a run may have; unset: those that it begins with
  std::optional<int> max_restarts = {};  // after failures; unset: 3 of an elastic run, else none
  int wait_seconds = 600;                // for as many hosts as there must be
  std::optional<int> requeue_code = {};  // unset: 75 of an elastic run, else none
  std::optional<int> join_port = {};     // where hosts come by themselves; unset: nowhere
  std::string join = {};  // ADDRESS:PORT of the run that this machine joins; empty: none

  // DeepSpeed's way to say the same; check_elastic_values makes `hosts` of them.
  bool elastic_training = false;
  std::optional<int> min_nodes = {};
  std::optional<int> max_nodes = {};

  int effective_max_restarts() const { return max_restarts.value_or(hosts ? 3 : 0); }
  // The exit code that says: saved, start me again. EX_TEMPFAIL of sysexits.h by itself.
  std::optional<int> effective_requeue_code() const {
    return requeue_code || !hosts ? requeue_code : std::optional(75);
  }
};

void add_elastic_flags(CLI::App& app, ElasticOptions& options);

// Throws UsageError.
void check_elastic_values(ElasticOptions& options);

}  // namespace zeroth::launcher
