#include "base/scheduler_env.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/variables.h"

namespace zeroth::scheduler_env_test {
namespace {

using testing::Variables;

// Notes the names that are looked up, if `names` is not null.
SchedulerEnv read(const Variables& variables, std::set<std::string>* names = nullptr) {
  return read_scheduler_env([&, lookup = testing::lookup_in(variables)](const char* name) {
    if (names != nullptr) names->insert(name);
    return lookup(name);
  });
}

// As srun sets them for task `rank` on machine `node` of `srun -n7 -N4`.
Variables step_of_slurm(int rank, int node, int local_rank) {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_JOB_NODELIST", "n[1-3,07],spare"},
          {"SLURM_NTASKS", "7"},
          {"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_NODEID", std::to_string(node)},
          {"SLURM_LOCALID", std::to_string(local_rank)},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_STEP_NODELIST", "n[1-3,07]"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};
}

Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

struct Row {
  const char* who;
  Variables variables;
  std::string launcher;
  int rank, world_size, local_rank, local_size;  // -1: not told
  std::string master;                            // "ADDRESS:PORT", "-" for what is not told
};

std::string master_of(const SchedulerEnv& env) {
  return env.master_addr.value_or("-") + ":" +
         (env.master_port ? std::to_string(*env.master_port) : "-");
}

std::vector<Row> rows_of_torchrun() {
  return {
      {"nobody", {}, "", 0, 1, -1, -1, "-:-"},
      {"torchrun",
       {{"RANK", "3"},
        {"WORLD_SIZE", "4"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"MASTER_PORT", "1234"}},
       "torchrun",
       3,
       4,
       1,
       2,
       "10.0.0.1:1234"},
      {"a person", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "torchrun", 1, 2, -1, -1, "-:-"},
  };
}

std::vector<Row> rows_of_mpi() {
  return {
      {"mpirun on one machine",
       {{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       "Open MPI",
       1,
       2,
       1,
       2,
       "-:-"},
      {"mpirun in a job of Slurm, whose daemon is a step",
       with(step_of_slurm(1, 1, 0), {{"OMPI_COMM_WORLD_RANK", "5"},
                                     {"OMPI_COMM_WORLD_SIZE", "8"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
       "Open MPI", 5, 8, 1, 2, "n1:19711"},
      {"MPICH and Intel MPI",
       {{"PMI_RANK", "2"},
        {"PMI_SIZE", "4"},
        {"MPI_LOCALRANKID", "0"},
        {"MPI_LOCALNRANKS", "2"},
        {"I_MPI_MPIRUN", "mpirun"},
        {"MASTER_ADDR", "node1"}},
       "MPI",
       2,
       4,
       0,
       2,
       "node1:-"},
      {"an old MPICH", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "MPI", 1, 2, -1, -1, "-:-"},
      {"PALS",
       {{"PMI_RANK", "2"},
        {"PMI_SIZE", "4"},
        {"PMI_LOCAL_RANK", "1"},
        {"PMI_LOCAL_SIZE", "2"},
        {"PALS_RANKID", "2"},
        {"MASTER_ADDR", "x1000"},
        {"MASTER_PORT", "7"}},
       "PALS",
       2,
       4,
       1,
       2,
       "x1000:7"},
  };
}

std::vector<Row> rows_of_slurm() {
  return {
      {"srun, rank 0", step_of_slurm(0, 0, 0), "Slurm", 0, 7, 0, 2, "n1:19711"},
      {"srun, the last rank", step_of_slurm(6, 3, 0), "Slurm", 6, 7, 0, 1, "n1:19711"},
      {"srun on one machine",
       with(step_of_slurm(1, 0, 1), {{"SLURM_STEP_NUM_TASKS", "2"},
                                     {"SLURM_STEP_TASKS_PER_NODE", "2"},
                                     {"SLURM_STEP_ID", "3"}}),
       "Slurm", 1, 2, 1, 2, "-:19714"},
      {"srun --mpi=pmi2", with(step_of_slurm(3, 1, 1), {{"PMI_RANK", "3"}, {"PMI_SIZE", "7"}}),
       "Slurm", 3, 7, 1, 2, "n1:19711"},
      {"srun beside what a script exports",
       with(step_of_slurm(2, 1, 0),
            {{"WORLD_SIZE", "7"}, {"MASTER_ADDR", "10.1.1.1"}, {"MASTER_PORT", "99"}}),
       "Slurm", 2, 7, 0, 2, "10.1.1.1:99"},
      // In which SLURM_NTASKS would make it wait for tasks that nobody starts.
      {"a script of sbatch",
       {{"SLURM_JOB_ID", "4711"},
        {"SLURM_JOB_NODELIST", "n[1-3,07]"},
        {"SLURM_NTASKS", "7"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NODEID", "0"},
        {"SLURM_LOCALID", "0"}},
       "",
       0,
       1,
       -1,
       -1,
       "-:-"},
      {"a script of sbatch that inherits from a step, and a shell of salloc",
       with(step_of_slurm(0, 0, 0), {{"SLURM_STEP_ID", "4294967291"}}), "", 0, 1, -1, -1, "-:-"},
  };
}

std::vector<Row> rows_of_kubeflow() {
  return {
      {"Kubeflow, one rank a pod",
       {{"PET_NNODES", "2"},
        {"PET_NPROC_PER_NODE", "1"},
        {"PET_NODE_RANK", "1"},
        {"PET_MASTER_ADDR", "job-node-0-0.job"},
        {"PET_MASTER_PORT", "29500"}},
       "Kubeflow",
       1,
       2,
       0,
       1,
       "job-node-0-0.job:29500"},
      {"a rank of a launcher in such a pod",
       {{"PET_NNODES", "2"},
        {"PET_NPROC_PER_NODE", "8"},
        {"PET_NODE_RANK", "1"},
        {"RANK", "9"},
        {"WORLD_SIZE", "16"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_SIZE", "8"},
        {"MASTER_ADDR", "a"}},
       "torchrun",
       9,
       16,
       1,
       8,
       "a:-"},
  };
}

std::vector<Row> rows() {
  std::vector<Row> all;
  for (const auto& part : {rows_of_torchrun(), rows_of_mpi(), rows_of_slurm(), rows_of_kubeflow()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string refusal(const Variables& variables) {
  return message_of<Error>([&] { read(variables); });
}

}  // namespace

TEST_CASE("who has started a rank tells it which it is") {
  for (const Row& row : rows()) {
    CAPTURE(row.who);
    const SchedulerEnv env = read(row.variables);
    CHECK(env.launcher == row.launcher);
    CHECK(env.rank == row.rank);
    CHECK(env.world_size == row.world_size);
    CHECK(env.local_rank.value_or(-1) == row.local_rank);
    CHECK(env.local_size.value_or(-1) == row.local_size);
    CHECK(master_of(env) == row.master);
  }
}

TEST_CASE("what says no rank is refused with the variable and its value") {
  CHECK(refusal({{"RANK", "-1"}}) == "environment variable RANK=-1 is not a number of at least 0");
  CHECK(refusal({{"RANK", "1"}}) ==
        "environment variable RANK=1 must be below WORLD_SIZE, which is not set");
  CHECK(refusal({{"WORLD_SIZE", "4"}}) ==
        "environment variable WORLD_SIZE=4 is set, but RANK is not");
  CHECK(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_SIZE", "2"}}) ==
        "environment variable LOCAL_RANK=2 must be below LOCAL_SIZE=2");
  CHECK(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_SIZE", "3"}}) ==
        "environment variable LOCAL_SIZE=3 is more than WORLD_SIZE=2");
  CHECK(refusal(with(step_of_slurm(0, 0, 0), {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}})) ==
        "environment variable SLURM_STEP_TASKS_PER_NODE: '2(x' is not a valid list of counts, such "
        "as 2(x3),1");
  CHECK(refusal(with(step_of_slurm(0, 0, 0), {{"SLURM_NODEID", "4"}})) ==
        "environment variable SLURM_STEP_TASKS_PER_NODE=2(x3),1 has no tasks for SLURM_NODEID=4");
  CHECK(refusal(with(step_of_slurm(0, 0, 0), {{"SLURM_STEP_NODELIST", "n[3-1]"}})) ==
        "environment variable SLURM_STEP_NODELIST: 'n[3-1]' is not a valid node list: '3-1' is a "
        "descending range");
  CHECK(refusal(with(step_of_slurm(7, 0, 0), {})) ==
        "environment variable SLURM_PROCID=7 must be below SLURM_STEP_NUM_TASKS=7");
  CHECK(refusal(with(step_of_slurm(0, 0, 0), {{"WORLD_SIZE", "14"}})) ==
        "environment variable WORLD_SIZE=14 is set without RANK, but Slurm has 7 ranks");
  CHECK(refusal({{"PET_NNODES", "2"}, {"PET_NPROC_PER_NODE", "auto"}, {"PET_NODE_RANK", "0"}})
            .starts_with("environment variable PET_NPROC_PER_NODE=auto needs a launcher"));
  CHECK(refusal({{"PET_NNODES", "1:4"}}) ==
        "environment variable PET_NNODES=1:4 needs a launcher of ranks: start `zeroth finetune "
        "...` (or torchrun) as the pod's command, which reads it");
}

TEST_CASE("ranks of MPI on several machines must be told where they meet") {
  CHECK(refusal({{"OMPI_COMM_WORLD_RANK", "0"},
                 {"OMPI_COMM_WORLD_SIZE", "4"},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}) ==
        "Open MPI has started 4 ranks on several machines: environment variable MASTER_ADDR, the "
        "address of rank 0's machine, must be set for all of them");
}

TEST_CASE("an empty variable counts as not set, and all that count are looked up") {
  CHECK(read({{"RANK", ""}, {"WORLD_SIZE", ""}}).world_size == 1);
  std::set<std::string> names;
  for (const Row& row : rows()) read(row.variables, &names);
  for (const Row& row : rows()) {
    for (const auto& [name, value] : row.variables) {
      const bool ignored =
          name == "SLURM_NTASKS" || name == "I_MPI_MPIRUN" || name == "PALS_RANKID";
      CAPTURE(name);
      CHECK(names.contains(name) != ignored);
    }
  }
}

}  // namespace zeroth::scheduler_env_test
