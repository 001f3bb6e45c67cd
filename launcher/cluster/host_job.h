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

class HostJob {
 public:
  // Takes the job's environment and working folder for this process. `own_folder`: that of zeroth
  // itself.
  HostJob(const RemoteJob& job, std::filesystem::path own_folder);

  // Ready, or all that is wrong.
  std::variant<Ready, Problems> look_around();

  // Once look_around() was content. `secret`: ZEROTH_SECRET of this round's ranks.
  RankPlan plan(const Start& start, const std::string& secret);

  const RemoteJob& job() const { return job_; }
  const Program& program() const { return program_; }

 private:
  void take_surroundings();
  void find_program_file();
  void find_slots();
  template <typename Step>
  void attempt(const Step& step);  // what it throws is a problem

  RemoteJob job_;
  std::filesystem::path own_folder_;
  Program program_;
  PlanRequest request_;
  LaunchOptions options_;
  Problems problems_;
  std::optional<MemoryFile> meeting_;  // open for as long as ranks run
};

}  // namespace zeroth::launcher
