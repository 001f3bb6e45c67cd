// The environment of a rank. Only this file reads it, except base/machine/cpu.h, whose ISA level is
// one per process for all of its ranks.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/restart_attempt.h"

namespace zeroth::comm {

struct RankBootstrap;

// The settings that a launcher passes to a rank; base/scheduler_env.h lists the launchers. Without
// a launcher it is a world of one.
struct RankEnv {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  bool has_local_size = false;  // false: world_size, unless the ranks discover more nodes
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::string rank_variables;  // that set rank and size: "RANK=0, WORLD_SIZE=2"; or empty
  // ZEROTH_HOST_ID: only ranks with the same value share memory; unset: the ranks discover it.
  std::optional<std::string> host_id;
  // GLOO_SOCKET_IFNAME: interface whose address other nodes reach; unset: that of the route to the
  // master.
  std::optional<std::string> interface;
  std::optional<std::string> nccl_interface;  // NCCL_SOCKET_IFNAME, which NCCL reads by itself
  // ZEROTH_MEETING: ticket of the memory through which ranks of `zeroth` bootstrap; the store is
  // not used then.
  std::optional<std::string> bootstrap_ticket;
  std::string secret;                 // value of ZEROTH_SECRET or content of ZEROTH_SECRET_FILE
  bool agent_store = false;           // torchrun's agent already serves the store
  bool agent_restart_counts = false;  // each agent of torchrun counts: agree_on_attempt()
  RestartAttempt attempt;
  std::shared_ptr<RankBootstrap>
      bootstrap;              // from resolve_attempt(), for make_mesh; null: not done yet
  bool shared_memory = true;  // false with ZEROTH_SHARED_MEMORY=0: ranks use TCP
  std::optional<std::string> accelerator;  // DS_ACCELERATOR: "cpu" or "cuda"
  bool hides_gpus = false;                 // CUDA_VISIBLE_DEVICES hides all GPUs
  bool share_gpus = false;                 // several ranks per GPU, through host memory
  bool nccl_shares_gpus = false;   // NCCL_MULTI_RANK_GPU_ENABLE: the same through NCCL, from 2.30
  std::optional<int> num_threads;  // OMP_NUM_THREADS
  // Time limit of each collective: ZEROTH_TIMEOUT (--timeout) in seconds, or DEEPSPEED_TIMEOUT in
  // minutes.
  std::chrono::seconds timeout{600};
  std::optional<double> launch_time;    // start of the launcher in seconds since the epoch
  std::optional<int> terminal_columns;  // width of the terminal that shows rank 0's output
  std::vector<std::string> warnings;    // accelerate settings that this run does not support

  // Reads the environment. Throws an Error that names the variable and its value.
  static RankEnv from_environment();
};

}  // namespace zeroth::comm
