#include "launcher/backends/scheduler_node.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher::scheduler_node_test {
namespace {

// The second of four tasks, one on each of four nodes.
const Variables kStep = {{"SLURM_JOB_ID", "1234567"},
                         {"SLURM_STEP_ID", "2"},
                         {"SLURM_PROCID", "1"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_STEP_NUM_NODES", "4"},
                         {"SLURM_STEP_TASKS_PER_NODE", "1(x4)"},
                         {"SLURM_STEP_NODELIST", "n[001-003,07]"},
                         {"SLURM_JOB_NODELIST", "n[000-003,07]"}};

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};

const Variables kPod = {{"PET_NNODES", "3"},
                        {"PET_NPROC_PER_NODE", "8"},
                        {"PET_NODE_RANK", "2"},
                        {"PET_MASTER_ADDR", "job-node-0-0.job"},
                        {"PET_MASTER_PORT", "29500"}};

Variables with(Variables variables, const Variables& more) {
  return merge_variables(variables, more);
}

std::optional<SchedulerNode> by(const Variables& variables, std::optional<int> num_nodes = {},
                                bool has_hostfile = false) {
  return find_scheduler_node(variables, num_nodes, has_hostfile);
}

template <typename Kind>
std::string error_of(const Variables& variables, std::optional<int> num_nodes = {}) {
  return message_of<Kind>([&] { by(variables, num_nodes); });
}

}  // namespace

TEST_CASE("each starter's words come to a node, their number, and where they meet") {
  struct Row {
    const char* name;
    Variables variables;
    SchedulerNode expected;
  };
  const Row rows[] = {
      {"srun", kStep, {"Slurm", 1, 4, "n001", 15'000 + 1'234'569 % 10'000}},
      {"srun with an address and a port of the user's",
       with(kStep, {{"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "4000"}}),
       {"Slurm", 1, 4, "10.0.0.7", 4000}},
      {"srun --mpi=pmi2 tells PMI's words too, without how many are on a node",
       with(kStep, {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}),
       {"Slurm", 1, 4, "n001", 19'569}},
      {"Open MPI", with(kOpenMpi, {{"MASTER_ADDR", "a"}}), {"Open MPI", 1, 2, "a", {}}},
      {"Open MPI says nothing of node 0", kOpenMpi, {"Open MPI", 1, 2, {}, {}}},
      {"Open MPI in a job of Slurm: its daemons are a step of their own",
       with(with(kStep, {{"SLURM_STEP_NODELIST", "n[001-003]"}, {"SLURM_NODEID", "0"}}), kOpenMpi),
       {"Open MPI", 1, 2, "n000", 19'567}},
      {"MPICH and Intel MPI",
       {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "1"}, {"MASTER_ADDR", "a"}},
       {"MPI", 2, 3, "a", {}}},
      {"PALS",
       {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"PMI_LOCAL_SIZE", "1"}, {"MASTER_ADDR", "a"}},
       {"PALS", 2, 3, "a", {}}},
      {"a pod of a TrainJob", kPod, {"Kubeflow", 2, 3, "job-node-0-0.job", 29500, 8}},
      {"ranks by our own count",
       with(kPod, {{"PET_NPROC_PER_NODE", "gpu"}}),
       {"Kubeflow", 2, 3, "job-node-0-0.job", 29500, {}}},
      {"a PyTorchJob says RANK as well",
       with(kPod, {{"RANK", "2"}, {"WORLD_SIZE", "3"}}),
       {"Kubeflow", 2, 3, "job-node-0-0.job", 29500, 8}},
      {"one pod of several ranks",
       {{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "4"}},
       {"Kubeflow", 0, 1, {}, {}, 4}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const auto found = by(row.variables);
    REQUIRE(found);
    CHECK(*found == row.expected);
  }
}

TEST_CASE("a pod of a JobSet knows its number, --num_nodes how many there are") {
  const Variables pod = {{"JOB_COMPLETION_INDEX", "1"}, {"MASTER_ADDR", "set-w-0-0.set"}};
  CHECK(*by(pod, 2) == SchedulerNode{"Kubernetes", 1, 2, "set-w-0-0.set", {}});
  CHECK_FALSE(by(pod, 2, true));
  CHECK(error_of<UsageError>(pod) ==
        "environment variable JOB_COMPLETION_INDEX=1 sets which pod of a Job this is, and "
        "MASTER_ADDR is set, but the number of nodes is missing: pass --num_nodes N");
  CHECK(error_of<UsageError>(with(pod, {{"JOB_COMPLETION_INDEX", "2"}}), 2) ==
        "--num_nodes 2: environment variable JOB_COMPLETION_INDEX=2 must be below it");
  CHECK_FALSE(by({{"JOB_COMPLETION_INDEX", "1"}}));
}

TEST_CASE("what is alone, or a rank already, was started on no other node") {
  const Variables rank = {{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "2"}};
  const Variables rows[] = {
      {},
      {{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_NNODES", "4"}},
      with(kStep, {{"SLURM_STEP_ID", "4294967291"}}),  // the script of sbatch
      with(kStep, {{"SLURM_STEP_ID", "4294967290"}}),  // an interactive shell
      with(kStep,
           {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NODEID", "0"}}),
      with(kStep, rank),
      with(kStep, {{"RANK", "1"}}),
      with(kOpenMpi, rank),
      with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}),
      with(kPod, rank),
      {{"PET_NNODES", "1"}},
      {{"PET_NNODES", ""}, {"OMPI_COMM_WORLD_LOCAL_SIZE", ""}},
      {{"PMIX_RANK", "1"}},
      {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}},
  };
  for (const Variables& row : rows) CHECK_FALSE(by(row));
}

TEST_CASE("several on a node are refused with what to do instead") {
  CHECK(error_of<UsageError>(with(kStep, {{"SLURM_STEP_NUM_TASKS", "32"}})) ==
        "Slurm has started 32 zeroths on 4 nodes: start one on each node (srun "
        "--ntasks-per-node=1 zeroth ...), which starts the ranks there; or start the program "
        "itself once for each rank, without zeroth. --no_ssh makes each a separate run");
  CHECK(error_of<UsageError>(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}))
            .starts_with("Open MPI has started 2 zeroths (OMPI_COMM_WORLD_LOCAL_SIZE=2 here): "
                         "start one on each node (mpirun --map-by ppr:1:node zeroth ...)"));
  CHECK(error_of<UsageError>({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}})
            .find("(mpirun -ppn 1 zeroth ...)") != std::string::npos);
}

TEST_CASE("words that are none, or contradict each other, are named") {
  CHECK(error_of<Error>(with(kStep, {{"SLURM_NODEID", "4"}})) ==
        "environment variable SLURM_NODEID=4 must be below SLURM_STEP_NUM_NODES=4");
  CHECK(error_of<Error>(with(kStep, {{"SLURM_STEP_NODELIST", "n[1-"}}))
            .starts_with("environment variable SLURM_STEP_NODELIST: "));
  CHECK(error_of<Error>(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "x"}})) ==
        "environment variable OMPI_COMM_WORLD_SIZE=x is not a number from 1 to 67108864");
  CHECK(error_of<Error>(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", ""}})) ==
        "environment variable OMPI_COMM_WORLD_RANK=1 must be below OMPI_COMM_WORLD_SIZE, which is "
        "not set");
  CHECK(error_of<UsageError>(with(kPod, {{"PET_NNODES", "4:1"}})) ==
        "environment variable PET_NNODES=4:1 is neither a number of nodes from 1 to 65536 nor "
        "MIN:MAX, such as 1:4");
  CHECK(error_of<Error>(with(kPod, {{"PET_NPROC_PER_NODE", "tpu"}})) ==
        "environment variable PET_NPROC_PER_NODE=tpu is not a number from 1 to 1024");
  CHECK(error_of<Error>(with(kPod, {{"MASTER_PORT", "70000"}})) ==
        "environment variable MASTER_PORT=70000 is not a number from 1 to 65535");
}

TEST_CASE("elastic_pet_nnodes: the words of an elastic job are understood") {
  const Variables job = {{"PET_NNODES", "1:3"},
                         {"PET_RDZV_ENDPOINT", "job-worker-0.ns:23456"},
                         {"PET_RDZV_BACKEND", "c10d"},
                         {"PET_NPROC_PER_NODE", "gpu"},
                         {"PET_MAX_RESTARTS", "5"}};
  const auto node_of = [&](const Variables& more, const std::string& own) {
    return find_scheduler_node(with(job, more), std::nullopt, false,
                               [&](const std::string& host) { return host == own; });
  };
  const SchedulerNode first = {"Kubeflow", 0, 3, "job-worker-0.ns", 23456, std::nullopt, 1};
  CHECK(node_of({}, "job-worker-0") == first);
  CHECK(node_of({}, "job-worker-0.ns") == first);
  CHECK(node_of({}, "job-worker-1")->node == 1);
  CHECK(node_of({{"PET_NODE_RANK", "2"}}, "x")->node == 2);
  CHECK(node_of({{"PET_RDZV_ENDPOINT", "[fd00::1]:4"}}, "fd00::1")->master_port == 4);
  CHECK(node_of({{"PET_RDZV_ENDPOINT", "fd00::1"}}, "fd00::1")->master_addr == "fd00::1");
  CHECK(node_of({{"PET_NNODES", "2"}}, "job-worker-0")->min_nodes == std::nullopt);
  CHECK(node_of({{"PET_NPROC_PER_NODE", "4"}}, "x")->ranks_per_node == 4);
  CHECK_FALSE(node_of({{"PET_NNODES", "1:1"}}, "x"));

  const auto options_of = [&](const Variables& variables, ElasticOptions options = {}) {
    apply_kubeflow_elastic(variables, options);
    return options;
  };
  CHECK(options_of(job).hosts == NodeRange{1, 3});
  CHECK(options_of(job).effective_max_restarts() == 5);
  CHECK(options_of(job, {.hosts = NodeRange{2, 2}, .max_restarts = 1}).effective_max_restarts() ==
        1);
  CHECK(options_of(job, {.hosts = NodeRange{2, 2}}).hosts == NodeRange{2, 2});
  CHECK(options_of(with(job, {{"PET_NNODES", "2"}})).hosts == NodeRange{2, 2});
  CHECK(options_of({{"PET_NNODES", "1"}, {"PET_MAX_RESTARTS", "2"}}).effective_max_restarts() == 2);
  CHECK_FALSE(options_of(kPod).hosts);
  CHECK_FALSE(options_of(with(job, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).hosts);
  ElasticOptions fixed;
  CHECK(apply_kubeflow_elastic(with(kPod, {{"PET_MAX_RESTARTS", "3"}}), fixed).size() == 1);
  CHECK(fixed.effective_max_restarts() == 0);
}

TEST_CASE("elastic_pet_nnodes: what cannot be followed is refused by its meaning") {
  const auto refusal = [](const Variables& more) {
    return error_of<UsageError>(with({{"PET_NNODES", "2"}}, more));
  };
  CHECK(refusal({{"PET_RDZV_ENDPOINT", "etcd:2379"}, {"PET_RDZV_BACKEND", "etcd-v2"}})
            .starts_with("environment variable PET_RDZV_ENDPOINT=etcd:2379 names a server of "
                         "etcd-v2, which is not a node of the run: MASTER_ADDR"));
  CHECK(refusal({}).find("but neither PET_NODE_RANK nor PET_RDZV_ENDPOINT sets which of them") !=
        std::string::npos);
  for (const char* const text : {":1", "a:", "a:0", "a:x", "[fd00::1]x", "a:70000"})
    CHECK(refusal({{"PET_RDZV_ENDPOINT", text}}).find("is not HOST:PORT") != std::string::npos);
  for (const char* const text : {"0:2", "1:2:3", "a:b", ":", "1:", "70000", "-1:2"})
    CHECK(refusal({{"PET_NNODES", text}}).find("nor MIN:MAX") != std::string::npos);
  CHECK(refusal({{"PET_NODE_RANK", "0"}, {"MASTER_PORT", "tcp://10.96.0.1:29500"}})
            .starts_with("environment variable MASTER_PORT=tcp://10.96.0.1:29500 was set by "
                         "Kubernetes for a service named 'master'"));
}

TEST_CASE("nested_launchers: who is one of several ranks already is told by whom, and what to do") {
  const auto refusal = [](const Variables& variables, const HostOptions& flags = {}) {
    return message_of<UsageError>([&] { check_not_nested(variables, flags); });
  };
  const Variables rank = {{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "2"}};
  CHECK(refusal(with(rank, {{"TORCHELASTIC_RUN_ID", "x"}, {"LOCAL_WORLD_SIZE", "2"}})) ==
        "zeroth already runs as rank 1 of 2 of torchrun (RANK=1 WORLD_SIZE=2 LOCAL_RANK=1): start "
        "the program itself there, or only zeroth; env -u RANK -u WORLD_SIZE -u LOCAL_RANK zeroth "
        "... makes each a separate run");
  CHECK(refusal(with(rank, {{"ZEROTH_LAUNCH_TIME", "1"}})).find("of 2 of zeroth (") !=
        std::string::npos);
  CHECK(refusal(with(rank, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).find("rank 0 of 2") !=
        std::string::npos);
  CHECK(refusal({{"LOCAL_RANK", "3"}, {"WORLD_SIZE", "4"}}).find("rank 3 of 4 of another") !=
        std::string::npos);
  CHECK(refusal(with(kStep, rank)).find("rank 1 of 2") != std::string::npos);
  CHECK(refusal({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}})
            .starts_with("an MPI has started 4 zeroths (PMI_RANK=0 here)"));
  CHECK(refusal({{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "2"}})
            .starts_with("MVAPICH has started 2 zeroths"));
  HostOptions said;
  said.no_ssh = true;
  said.num_nodes = 2;
  said.node_rank = 1;
  const Variables alone = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_SIZE", "1"}};
  CHECK_NOTHROW(check_not_nested(alone, said));
  CHECK_THROWS_AS(check_not_nested(alone, {}), UsageError);
  CHECK_THROWS_AS(check_not_nested(with(rank, {{"LOCAL_SIZE", "2"}}), said), UsageError);
}

TEST_CASE("nested_launchers: the ways that are documented stay") {
  const Variables rows[] = {
      {},
      kStep,
      kOpenMpi,
      kPod,
      with(kPod, {{"RANK", "2"}, {"WORLD_SIZE", "3"}}),  // Kubeflow's operator says both
      {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}},
      {{"RANK", "9"}},  // left over
      {{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
      {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
      with(kStep, {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}),
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}},
  };
  for (const Variables& row : rows) CHECK_NOTHROW(check_not_nested(row, {}));
}

}  // namespace zeroth::launcher::scheduler_node_test
