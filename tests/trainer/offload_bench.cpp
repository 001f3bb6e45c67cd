#include "tests/trainer/offload_bench.h"

#include <fmt/format.h>

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"({"bf16": {"enabled": true}, "zero_optimization": {
  "stage": 3, "stage3_param_persistence_threshold": 0,
  "offload_optimizer": {"device": "nvme", "nvme_path": "nvme"},
  "offload_param": {"device": "nvme", "nvme_path": "nvme", "max_in_cpu": 0}}})";

constexpr const char* kFunctions = R"(
rank() {
  for process in $(cat /proc/$job/task/*/children); do
    if tr '\0' '\n' < /proc/$process/environ | grep -qx RANK=$1; then echo $process; fi
  done
}
swap() {
  echo /proc/$1/fd/$(ls -l /proc/$1/fd | awk -v end="[.]$2[.]swap [(]deleted[)]\$" '$0 ~ end {print $(NF - 3)}')
}
steps() {
  until grep -qs "\"step\":$1," m.jsonl || ! kill -0 $job; do sleep 0.02; done
}
)";

}  // namespace

OffloadBench::OffloadBench() {
  write("nvme.json", kConfig);
}

Workbench::Result OffloadBench::while_running(const std::string& arguments,
                                              const std::string& script,
                                              std::chrono::seconds limit) const {
  return shell(
      fmt::format("{}\n'{}/zeroth' --num_gpus 2 finetune --model model --data train.bin --seq-len "
                  "16 --deepspeed nvme.json --metrics m.jsonl {} & job=$!\n{}",
                  kFunctions, ZEROTH_BIN_DIR, arguments, script),
      limit);
}

bool OffloadBench::is_clean() const {
  const fs::path nvme = *this / "nvme";
  return fs::exists(nvme) && fs::is_empty(nvme);
}

}  // namespace zeroth::trainer
