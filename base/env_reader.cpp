#include "base/env_reader.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"

namespace zeroth {
namespace {

constexpr const char* kVariables[] = {
    // Set by users.
    "DS_ACCELERATOR", "DS_ENV_FILE", "DEEPSPEED_TIMEOUT", "DEEPSPEED_ELASTICITY_CONFIG",
    "ZEROTH_SECRET", "ZEROTH_SECRET_FILE", "ZEROTH_CPU", "ZEROTH_PRODUCT", "ZEROTH_HOST_ID",
    "ZEROTH_TIMEOUT", "ZEROTH_SHARED_MEMORY", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
    "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS",
    // Set by launchers.
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "ZEROTH_MEETING", "ZEROTH_LAUNCH_TIME", "ZEROTH_SHARE_GPUS", "ZEROTH_TTY",
    "ZEROTH_COLUMNS", "ZEROTH_ROUND", "ZEROTH_RUN",
    // Set by schedulers.
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE",
    "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
    "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_STEP_ID", "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "PET_NNODES",
    "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_RDZV_BACKEND",
    "PET_RDZV_ENDPOINT", "PET_MAX_RESTARTS", "JOB_COMPLETION_INDEX"};

}  // namespace

std::optional<std::string> EnvReader::text(const char* name) const {
  const char* const value = lookup_(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string EnvReader::quote(const char* name) const {
  return fmt::format("{}={}", name, shortened(text(name).value_or("")));
}

void EnvReader::reject_number(const char* name, std::string_view expected) const {
  // Kubernetes sets MASTER_PORT=tcp://10.0.0.1:29500 in each pod if a service "master" exists.
  const std::string value = text(name).value_or("");
  if (value.starts_with("tcp://") || value.starts_with("udp://"))
    throw Error(
        "environment variable {} was set by Kubernetes for a service named 'master': set "
        "MASTER_PORT to the port of rank 0 in the pod's env, or enableServiceLinks to false",
        quote(name));
  throw Error("environment variable {} is not a number {}", quote(name), expected);
}

void reject_empty_variables(const EnvLookup& lookup) {
  std::vector<std::string> errors;
  for (const char* const name : kVariables) {
    const char* const value = lookup(name);
    if (value != nullptr && *value == '\0')
      errors.push_back(
          fmt::format("environment variable {} is empty: give it a value, or unset it", name));
  }
  if (!errors.empty()) throw UsageError("{}", listed(errors));
}

bool must_not_be_empty(std::string_view name) {
  return std::find(std::begin(kVariables), std::end(kVariables), name) != std::end(kVariables);
}

}  // namespace zeroth
