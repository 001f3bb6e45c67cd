// A host's part of a job, as its agent finds it: whether it can run here, and its ranks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/memory_file.h"
#include "launcher/cluster/messages.h"
#include "launcher/run/rank_plan.h"
#include "launcher/run/rank_process.h"

namespace zeroth::launcher {

class NodeJob {
 public:
  // Takes the job's environment and working folder for this process. `zeroth_directory`: that of
  // zeroth itself.
  NodeJob(const RemoteJob& job, std::filesystem::path zeroth_directory);

  // Ready, or all that is wrong.
  std::variant<Ready, Problems> check_readiness();

  // Once check_readiness() was content. `secret`: ZEROTH_SECRET of this round's ranks.
  RankPlan plan(const StartRanks& start, const std::string& secret);

  const RemoteJob& job() const { return job_; }
  const Program& program() const { return program_; }

 private:
  void apply_environment();
  void resolve_program();
  void resolve_slots();
  template <typename Step>
  void collect_problem(const Step& step);  // what it throws is a problem

  RemoteJob job_;
  std::filesystem::path zeroth_directory_;
  Program program_;
  PlanRequest request_;
  LaunchOptions options_;
  Problems problems_;
  std::optional<MemoryFile> bootstrap_memory_;  // open for as long as ranks run
};

}  // namespace zeroth::launcher
