// Which of several nodes this `zeroth` is on, where Slurm, MPI or Kubernetes has started one on
// each of them. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launcher/cluster/forwarded_environment.h"
#include "launcher/flags/elastic_flags.h"
#include "launcher/flags/host_flags.h"

namespace zeroth::launcher {

struct SchedulerNode {
  std::string scheduler;  // "Slurm"
  int node = 0;           // from 0; rank 0 is on node 0
  int num_nodes = 1;
  std::optional<std::string> master_addr = {};  // of node 0; empty: nobody says
  std::optional<int> master_port = {};          // the same on all nodes, likewise
  std::optional<int> ranks_per_node = {};       // that Kubeflow asks for
  std::optional<int> min_nodes = {};            // where not all of them need to be there

  bool operator==(const SchedulerNode&) const = default;
};

// By the first of these variables that say so: OMPI_COMM_WORLD_* of Open MPI, PMI_* of MPICH, Intel
// MPI and PALS, a step of Slurm (a script of sbatch is none), PET_* of a pod of Kubeflow,
// JOB_COMPLETION_INDEX of a pod of an indexed Job. That one says no number of nodes, which is
// `num_nodes` then, of --num_nodes, and nothing beside a hostfile. MASTER_ADDR and MASTER_PORT go
// before what a starter says of them. An empty variable counts as not set.
//
// An elastic pod of Kubeflow (PET_NNODES=MIN:MAX, or PET_RDZV_ENDPOINT without a node's number) has
// MAX nodes, of which the one that `is_this_machine` finds at PET_RDZV_ENDPOINT is the first.
//
// Nothing where this is the only one; where somebody has made this process a rank already
// (`zeroth`, torchrun, a person: LOCAL_RANK, or RANK without PET_NODE_RANK); or where nobody says
// anything.
//
// Of a step of Slurm, and of MPI within a job of Slurm, node 0 is the first of the node list and
// the port 15000 + (job + step) % 10000, so that jobs that share a node rarely meet at one port.
//
// Throws UsageError, with what to write instead, where a node has several, and with variables and
// values where these are no numbers or contradict each other.
std::optional<SchedulerNode> find_scheduler_node(
    const Variables& variables, std::optional<int> num_nodes, bool has_hostfile,
    const std::function<bool(const std::string& host)>& is_this_machine = {});

// Throws a UsageError that names the launcher if this `zeroth` is itself one of several ranks (of
// `zeroth`, torchrun, an MPI that does not say how many are on a node): each would start ranks of
// its own. Does not throw if flags say which node of how many this is.
void check_not_nested(const Variables& variables, const HostOptions& flags);

// What Kubeflow asks for by the words of torchrun's elastic agents, where flags do not say it:
// --elastic of PET_NNODES=MIN:MAX, --max-restarts of PET_MAX_RESTARTS. Returns notes, a line each.
// Throws UsageError as find_scheduler_node.
std::vector<std::string> apply_kubeflow_elastic(const Variables& variables,
                                                ElasticOptions& options);

}  // namespace zeroth::launcher
