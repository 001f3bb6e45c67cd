// A workbench whose runs keep everything that can rest in files in its folder nvme/.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "tests/trainer/workbench.h"

namespace zeroth::trainer {

// nvme.json is its ds_config.json.
class OffloadBench : public Workbench {
 public:
  OffloadBench();

  // `zeroth --num_gpus 2 finetune` with nvme.json in the background of a shell; then `script`,
  // which finds the launcher's process in $job and these functions:
  //   rank N            process of rank N
  //   swap PROCESS KIND a way to that rank's file of KIND (optimizer, parameters), which has no
  //   name steps N           waits until N steps are made; ends when the job does
  Result while_running(const std::string& arguments, const std::string& script,
                       std::chrono::seconds limit = std::chrono::minutes(2)) const;

  // Whether nothing of a run is left in nvme/.
  bool is_clean() const;
};

}  // namespace zeroth::trainer
