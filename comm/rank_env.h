// What the environment tells a rank: the only file that reads it, but for base/cpu.h, whose
// level a process has for all of its ranks.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/restart_attempt.h"

namespace zeroth::comm {

struct RankBootstrap;

// What a launcher tells a rank: comm/scheduler_env.h says which are understood; without any of them
// a world of one.
struct RankEnv {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  bool has_local_size = false;  // else it is the world's, unless the ranks find more machines
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::string rank_variables;  // that set rank and size: "RANK=0, WORLD_SIZE=2"; empty: none
  // ZEROTH_HOST_ID: ranks with the same one share memory, others do not; else they find out.
  std::optional<std::string> host_id;
  // GLOO_SOCKET_IFNAME: whose address other machines reach; else the one of the route to the
  // master.
  std::optional<std::string> interface;
  std::optional<std::string> nccl_interface;  // NCCL_SOCKET_IFNAME, which NCCL reads by itself
  // ZEROTH_MEETING: ticket of the memory in which ranks of `zeroth` meet; the store is not used
  // then.
  std::optional<std::string> bootstrap_ticket;
  std::string secret;                 // ZEROTH_SECRET or what is in ZEROTH_SECRET_FILE
  bool agent_store = false;           // torchrun's agent already serves the store
  bool agent_restart_counts = false;  // torchrun's agents do, each for itself: agree_on_attempt()
  RestartAttempt attempt;
  std::shared_ptr<RankBootstrap>
      bootstrap;              // of resolve_attempt(), for make_mesh; null: they have not met
  bool shared_memory = true;  // false with ZEROTH_SHARED_MEMORY=0: ranks use TCP
  std::optional<std::string> accelerator;  // DS_ACCELERATOR: "cpu" or "cuda"
  bool hides_gpus = false;                 // CUDA_VISIBLE_DEVICES shows none
  bool share_gpus = false;                 // several ranks per GPU: through host memory
  bool nccl_shares_gpus = false;           // NCCL_MULTI_RANK_GPU_ENABLE: or through NCCL, from 2.30
  std::optional<int> num_threads;          // OMP_NUM_THREADS
  // Of every collective: ZEROTH_TIMEOUT (--timeout) in seconds, or DEEPSPEED_TIMEOUT in minutes.
  std::chrono::seconds timeout{600};
  std::optional<double> launch_time;    // seconds since the epoch at which the launcher started
  std::optional<int> terminal_columns;  // rank 0's output ends on a terminal of this width
  std::vector<std::string> warnings;    // what accelerate was asked for and this run does not do

  // Throws an Error that names the variable and its value.
  static RankEnv from_environment();
};

}  // namespace zeroth::comm
