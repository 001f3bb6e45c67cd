// A node's part of a job, on the agent's side: whether it can run here, and its ranks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/machine/memory_file.h"
#include "launcher/run/rank_plan.h"
#include "launcher/run/rank_process.h"
#include "launcher/transport/messages.h"

namespace zeroth::launcher {

class NodeJob {
 public:
  // Applies the job's environment and working directory to this process. `zeroth_directory` is the
  // directory of the zeroth executable.
  NodeJob(const RemoteJob& job, std::filesystem::path zeroth_directory);

  // Returns Ready, or all problems.
  std::variant<Ready, Problems> check_readiness();

  // Plans the ranks after check_readiness() has returned Ready. `secret` is ZEROTH_SECRET of this
  // attempt's ranks.
  RankPlan plan(const StartRanks& start, const std::string& secret);

  const RemoteJob& job() const { return job_; }
  const Program& program() const { return program_; }

 private:
  void apply_environment();
  void resolve_program();
  void resolve_slots();

  RemoteJob job_;
  std::filesystem::path zeroth_directory_;
  Program program_;
  PlanRequest request_;
  LaunchOptions options_;
  std::optional<MemoryFile> bootstrap_memory_;  // open while ranks run
};

// Returns the directory that a program's arguments name by --model or --model_name_or_path, the
// last one; empty: none. Pure.
std::string model_argument(const std::vector<std::string>& command);

// Returns the digest of config.json and the indices of its weights (*.index.json), by name and
// content. Skips the weights themselves, which would take minutes. Empty if `directory` is not a
// directory, as with a hub's name. Throws Error if one of the files cannot be read.
std::string model_digest(const std::string& directory);

}  // namespace zeroth::launcher
