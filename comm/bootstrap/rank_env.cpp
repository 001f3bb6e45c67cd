#include "comm/bootstrap/rank_env.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/env_reader.h"
#include "base/error.h"
#include "base/files/run_secret.h"
#include "base/machine/cpu.h"
#include "base/machine/standard_streams.h"
#include "base/scheduler_env.h"

namespace zeroth::comm {
namespace {

// Equals the maximum of ZEROTH_TIMEOUT: an int of minutes may exceed an int64 of nanoseconds.
constexpr std::chrono::seconds kMaxTimeout{std::numeric_limits<int>::max()};

bool is_true(const EnvReader& reader, const char* name) {
  const std::string value = reader.text(name).value_or("");
  return value == "True" || value == "true" || value == "1";
}

// Returns warnings about variables that `accelerate launch` sets beside torchrun's. On the CPU, and
// unless one of its own flags says otherwise, it starts one process, with an address and a port for
// the others, and sets neither RANK nor WORLD_SIZE.
std::vector<std::string> accelerate_warnings(const EnvReader& reader, bool has_rank) {
  std::vector<std::string> warnings;
  const auto precision = reader.text("ACCELERATE_MIXED_PRECISION");
  if (!precision) return warnings;  // accelerate always sets it
  if (!has_rank && reader.has("MASTER_ADDR") && reader.has("MASTER_PORT")) {
    warnings.push_back(
        "accelerate launch was asked for several processes and has started one, as it does without "
        "--multi_gpu or --mpirun_hostfile: this run has one rank; zeroth --num_gpus N starts N");
  }
  if (*precision == "bf16" || *precision == "fp16") {
    warnings.push_back("accelerate's --mixed_precision " + *precision + " is not read: give --" +
                       *precision + ", or write it into ds_config.json");
  }
  if (is_true(reader, "ACCELERATE_USE_DEEPSPEED")) {
    const auto file = reader.text("ACCELERATE_DEEPSPEED_CONFIG_FILE");
    warnings.push_back("accelerate's DeepSpeed settings are not read: give --deepspeed " +
                       (file && *file != "none" ? *file : "FILE"));
  }
  for (const char* name : {"ACCELERATE_USE_FSDP", "ACCELERATE_USE_MEGATRON_LM"}) {
    if (!is_true(reader, name)) continue;
    warnings.push_back(
        std::string(name) +
        " is not read: the zero_optimization section of ds_config.json sets the sharding");
  }
  return warnings;
}

}  // namespace

RankEnv RankEnv::from_environment() {
  reject_empty_variables(std::getenv);
  matmul_backends();  // reports errors in ZEROTH_CPU and ZEROTH_PRODUCT early
  const EnvReader reader(std::getenv);
  RankEnv env;
  const SchedulerEnv scheduler = read_scheduler_env(std::getenv);
  env.rank = scheduler.rank;
  env.rank_variables = scheduler.rank_variables;
  env.world_size = scheduler.world_size;
  env.local_rank = scheduler.local_rank.value_or(scheduler.rank);
  env.local_size = scheduler.local_size.value_or(scheduler.world_size);
  env.has_local_size = scheduler.local_size.has_value();
  env.master_addr = scheduler.master_addr.value_or(env.master_addr);
  env.master_port = scheduler.master_port.value_or(env.master_port);
  env.host_id = reader.text("ZEROTH_HOST_ID");
  env.interface = reader.text("GLOO_SOCKET_IFNAME");
  env.nccl_interface = reader.text("NCCL_SOCKET_IFNAME");
  env.agent_store = reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  env.attempt = parse_restart_attempt(std::getenv);
  env.agent_restart_counts = env.agent_store || reader.has("TORCHELASTIC_RESTART_COUNT");
  if (!env.agent_store)
    env.bootstrap_ticket = reader.text("ZEROTH_MEETING");  // torchrun inside `zeroth`
  env.secret = run_secret(reader.text("ZEROTH_SECRET"), reader.text("ZEROTH_SECRET_FILE"));
  const std::string shared_memory = reader.text("ZEROTH_SHARED_MEMORY").value_or("1");
  if (shared_memory != "0" && shared_memory != "1")
    throw Error("environment variable ZEROTH_SHARED_MEMORY={} is neither 0 nor 1", shared_memory);
  env.shared_memory = shared_memory == "1";
  env.accelerator = reader.text("DS_ACCELERATOR");
  if (env.accelerator && *env.accelerator != "cpu" && *env.accelerator != "cuda") {
    throw Error("environment variable DS_ACCELERATOR={} is neither cpu nor cuda", *env.accelerator);
  }
  if (!env.accelerator && is_true(reader, "ACCELERATE_USE_CPU")) env.accelerator = "cpu";
  // CUDA hides all devices after the first one that does not exist.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string_view first = visible == nullptr ? "0" : visible;
  env.hides_gpus = first.empty() || first.starts_with('-') || first == "NoDevFiles";
  env.warnings = accelerate_warnings(reader, !scheduler.launcher.empty());
  env.share_gpus = reader.text("ZEROTH_SHARE_GPUS") == "1";
  env.nccl_shares_gpus = reader.text("NCCL_MULTI_RANK_GPU_ENABLE") == "1";
  env.num_threads = reader.number("OMP_NUM_THREADS", 1);
  if (const auto minutes = reader.number("DEEPSPEED_TIMEOUT", 1))
    env.timeout = std::min<std::chrono::seconds>(std::chrono::minutes(*minutes), kMaxTimeout);
  if (const auto seconds = reader.number("ZEROTH_TIMEOUT", 1))
    env.timeout = std::chrono::seconds(*seconds);
  env.launch_time = reader.number<double>("ZEROTH_LAUNCH_TIME", 0);
  // The launcher knows where rank 0's output ends; without a launcher it is standard output.
  env.terminal_columns = reader.text("ZEROTH_TTY") == "1"
                             ? reader.number("ZEROTH_COLUMNS", 1).value_or(80)
                             : zeroth::terminal_columns(STDOUT_FILENO, std::getenv("TERM"));
  return env;
}

}  // namespace zeroth::comm
