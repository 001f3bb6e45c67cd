#include "comm/bootstrap.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "base/cpu.h"
#include "base/empty_variables.h"
#include "base/error.h"
#include "base/run_secret.h"
#include "base/standard_streams.h"
#include "base/units.h"
#include "comm/launched_by.h"

namespace zeroth::comm {
namespace {

// As ZEROTH_TIMEOUT's most: an int of minutes may have more nanoseconds than an int64 holds.
constexpr std::chrono::seconds kLongestTimeout{std::numeric_limits<int>::max()};

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

template <typename Number>
std::optional<Number> number(const char* name, Number least,
                             Number most = std::numeric_limits<Number>::max()) {
  const auto text = variable(name);
  if (!text) return std::nullopt;
  const auto value = parse_number<Number>(*text);
  if (!value || *value < least) {
    throw Error("environment variable {}={} is not a number of at least {}", name, *text, least);
  }
  if (*value > most) {
    throw Error("environment variable {}={} is not a number of at most {}", name, *text, most);
  }
  return value;
}

Variables words_of(const std::vector<std::string>& names) {
  Variables words;
  for (const std::string& name : names) {
    if (auto value = variable(name.c_str())) words[name] = std::move(*value);
  }
  return words;
}

bool is_true(const char* name) {
  const std::string value = variable(name).value_or("");
  return value == "True" || value == "true" || value == "1";
}

// What `accelerate launch` hands on beside torchrun's variables. On the CPU, and wherever no flag
// of its own says otherwise, it starts one process, with an address and a port for the others, and
// tells it neither RANK nor WORLD_SIZE.
std::vector<std::string> accelerate_warnings(bool has_rank) {
  std::vector<std::string> warnings;
  const auto precision = variable("ACCELERATE_MIXED_PRECISION");
  if (!precision) return warnings;  // which it always sets
  if (!has_rank && variable("MASTER_ADDR") && variable("MASTER_PORT")) {
    warnings.push_back(
        "accelerate launch was asked for several processes and has started one, as it does without "
        "--multi_gpu or --mpirun_hostfile: this run has one rank; zeroth --num_gpus N starts N");
  }
  if (*precision == "bf16" || *precision == "fp16") {
    warnings.push_back("accelerate's --mixed_precision " + *precision + " is not read: give --" +
                       *precision + ", or write it into ds_config.json");
  }
  if (is_true("ACCELERATE_USE_DEEPSPEED")) {
    const auto file = variable("ACCELERATE_DEEPSPEED_CONFIG_FILE");
    warnings.push_back("what accelerate says of DeepSpeed is not read: give --deepspeed " +
                       (file && *file != "none" ? *file : "FILE"));
  }
  for (const char* name : {"ACCELERATE_USE_FSDP", "ACCELERATE_USE_MEGATRON_LM"}) {
    if (!is_true(name)) continue;
    warnings.push_back(std::string(name) +
                       " is not read: the zero_optimization section of ds_config.json shards");
  }
  return warnings;
}

}  // namespace

RankEnv RankEnv::from_environment() {
  refuse_empty_variables(std::getenv);
  cpu_products();  // says what is wrong with ZEROTH_CPU and ZEROTH_PRODUCT while nothing has begun
  RankEnv env;
  const LaunchedBy by = launched_by(words_of(launcher_variables()));
  env.rank = by.rank;
  env.rank_variables = by.rank_variables;
  env.world_size = by.world_size;
  env.local_rank = by.local_rank.value_or(by.rank);
  env.local_size = by.local_size.value_or(by.world_size);
  env.local_size_told = by.local_size.has_value();
  env.master_addr = by.master_addr.value_or(env.master_addr);
  env.master_port = by.master_port.value_or(env.master_port);
  env.host_id = variable("ZEROTH_HOST_ID");
  env.interface = variable("GLOO_SOCKET_IFNAME");
  env.nccl_interface = variable("NCCL_SOCKET_IFNAME");
  env.agent_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  env.round = round_of(words_of(round_variables()));
  env.agents_count = env.agent_store || variable("TORCHELASTIC_RESTART_COUNT");
  if (!env.agent_store) env.meeting = variable("ZEROTH_MEETING");  // torchrun inside `zeroth`
  env.secret = run_secret(variable("ZEROTH_SECRET"), variable("ZEROTH_SECRET_FILE"));
  const std::string shared_memory = variable("ZEROTH_SHARED_MEMORY").value_or("1");
  if (shared_memory != "0" && shared_memory != "1")
    throw Error("environment variable ZEROTH_SHARED_MEMORY={} is neither 0 nor 1", shared_memory);
  env.shared_memory = shared_memory == "1";
  env.accelerator = variable("DS_ACCELERATOR");
  if (env.accelerator && *env.accelerator != "cpu" && *env.accelerator != "cuda") {
    throw Error("environment variable DS_ACCELERATOR={} is neither cpu nor cuda", *env.accelerator);
  }
  if (!env.accelerator && is_true("ACCELERATE_USE_CPU")) env.accelerator = "cpu";
  // What follows the first device that is not there is hidden.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string_view first = visible == nullptr ? "0" : visible;
  env.hides_gpus = first.empty() || first.starts_with('-') || first == "NoDevFiles";
  env.warnings = accelerate_warnings(!by.launcher.empty());
  env.share_gpus = variable("ZEROTH_SHARE_GPUS") == "1";
  env.nccl_shares_gpus = variable("NCCL_MULTI_RANK_GPU_ENABLE") == "1";
  env.num_threads = number<int>("OMP_NUM_THREADS", 1);
  if (const auto minutes = number<int>("DEEPSPEED_TIMEOUT", 1))
    env.timeout = std::min<std::chrono::seconds>(std::chrono::minutes(*minutes), kLongestTimeout);
  if (const auto seconds = number<int>("ZEROTH_TIMEOUT", 1))
    env.timeout = std::chrono::seconds(*seconds);
  env.launch_time = number<double>("ZEROTH_LAUNCH_TIME", 0);
  // The launcher knows where rank 0's output ends; without one it is standard output itself.
  env.terminal_columns = variable("ZEROTH_TTY") == "1"
                             ? number<int>("ZEROTH_COLUMNS", 1).value_or(80)
                             : zeroth::terminal_columns(STDOUT_FILENO, std::getenv("TERM"));
  return env;
}

}  // namespace zeroth::comm
