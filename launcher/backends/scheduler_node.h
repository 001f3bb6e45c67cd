// The node on which this `zeroth` runs, if Slurm, MPI or Kubernetes has started one on each of
// several nodes. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launcher/backends/forwarded_environment.h"
#include "launcher/flags/host_flags.h"

namespace zeroth::launcher {

struct SchedulerNode {
  std::string scheduler;  // "Slurm"
  int node = 0;           // from 0; rank 0 is on node 0
  int num_nodes = 1;
  std::optional<std::string> master_addr = {};  // of node 0; empty: not provided
  std::optional<int> master_port = {};          // same on all nodes; empty: not provided
  std::optional<int> ranks_per_node = {};       // requested by Kubeflow
  std::optional<int> min_nodes = {};            // if some nodes may be missing

  bool operator==(const SchedulerNode&) const = default;
};

// Finds the node by the first of these variables that provide it: OMPI_COMM_WORLD_* of Open MPI,
// PMI_* of MPICH, Intel MPI and PALS, a step of Slurm (not a script of sbatch), PET_* of a pod of
// Kubeflow, JOB_COMPLETION_INDEX of a pod of an indexed Job. The last one does not provide the
// number of nodes, which is then `num_nodes`, of --num_nodes, and it is ignored beside a hostfile.
// MASTER_ADDR and MASTER_PORT take precedence over the scheduler's values. An empty variable counts
// as not set.
//
// An elastic pod of Kubeflow (PET_NNODES=MIN:MAX, or PET_RDZV_ENDPOINT without a node rank) has MAX
// nodes; the first is the one that `is_this_machine` finds at PET_RDZV_ENDPOINT.
//
// Returns empty if this is the only node, if a launcher has already made this process a rank
// (`zeroth`, torchrun, a person: LOCAL_RANK, or RANK without PET_NODE_RANK), or if no variable
// provides a node.
//
// For a step of Slurm, and for MPI within a job of Slurm, node 0 is the first of the node list and
// the port is 15000 + (job + step) % 10000, so that jobs that share a node rarely use the same
// port.
//
// Throws UsageError, with the correct usage, if a node has several tasks, and if variables and
// values are not numbers or contradict each other.
std::optional<SchedulerNode> find_scheduler_node(
    const Variables& variables, std::optional<int> num_nodes, bool has_hostfile,
    const std::function<bool(const std::string& host)>& is_this_machine = {});

// Throws a UsageError that names the launcher if this `zeroth` is itself one of several ranks (of
// `zeroth`, torchrun, an MPI that does not provide the number of tasks on a node): each would start
// ranks of its own. Does not throw if flags specify the node and the number of nodes.
void check_not_nested(const Variables& variables, const HostOptions& flags);

// Applies the variables of torchrun's elastic agents that Kubeflow sets, unless flags are set:
// PET_NNODES=MIN:MAX for --elastic, PET_MAX_RESTARTS for --max-restarts. Returns notes, a line
// each. Throws UsageError as find_scheduler_node.
std::vector<std::string> apply_kubeflow_elastic(const Variables& variables,
                                                ElasticOptions& options);

}  // namespace zeroth::launcher
