#include "trainer/report/offload_notes.h"

#include <fmt/format.h>

namespace zeroth::trainer {
namespace {

using configs::RestingPlace;

std::vector<std::string> notes_of_cpu_run(const engine::RunMemory& run) {
  const configs::ZeroConfig& zero = run.config.zero;
  std::vector<std::string> notes;
  const auto add = [&](std::string_view setting) {
    notes.push_back(fmt::format("{} moves nothing: this run computes in host memory", setting));
  };
  const configs::OffloadOptimizerConfig& optimizer = zero.offload_optimizer;
  if (run.options.trains && optimizer.device == RestingPlace::kCpu) {
    add("zero_optimization.offload_optimizer.device \"cpu\"");
  }
  if (run.options.trains && optimizer.device != RestingPlace::kDevice &&
      optimizer.step == configs::OffloadOptimizerConfig::Step::kGpu) {
    add("zero_optimization.offload_optimizer.step \"gpu\"");
  }
  if (zero.offload_param.device == RestingPlace::kCpu) {
    add("zero_optimization.offload_param.device \"cpu\"");
  }
  const configs::RecomputeConfig& recompute = run.config.recompute;
  if (run.options.trains && recompute.cpu_checkpointing &&
      (recompute.every_nth_block > 0 || recompute.number_checkpoints > 0)) {
    add("activation_checkpointing.cpu_checkpointing");
  }
  return notes;
}

}  // namespace

std::vector<std::string> offload_notes(const engine::RunMemory& run) {
  std::vector<std::string> notes;
  if (run.options.device == torch::kCPU) notes = notes_of_cpu_run(run);
  const configs::ZeroConfig& zero = run.config.zero;
  const zero::MemoryPlan& memory = run.memory;
  const int64_t updated_in_file = memory.masters.file + memory.states.file;
  if (run.options.trains && zero.offload_optimizer.device == RestingPlace::kNvme &&
      updated_in_file == 0) {
    notes.push_back(fmt::format(
        "zero_optimization.offload_optimizer.device \"nvme\": nothing rests in a file: {}",
        memory.masters.total() + memory.states.total() > 0
            ? fmt::format("ratio {:g} leaves no unit for it", zero.offload_optimizer.ratio)
            : "this optimizer has no state"));
  }
  if (zero.offload_param.device == RestingPlace::kNvme && memory.parameters.file == 0) {
    notes.push_back(fmt::format(
        "zero_optimization.offload_param.device \"nvme\": nothing rests in a file: "
        "max_in_cpu {} and stage3_param_persistence_threshold {} keep all in memory",
        zero.offload_param.max_in_cpu_elements, zero.param_persistence_threshold_elements));
  }
  return notes;
}

}  // namespace zeroth::trainer
