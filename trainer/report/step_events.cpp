#include "trainer/report/step_events.h"

#include <string>

namespace zeroth::trainer {

std::vector<monitor::Event> step_events(const StepRow& row, const configs::Config& config,
                                        int64_t samples) {
  const engine::StepStats& stats = row.stats;
  std::vector<monitor::Event> events;
  const auto add = [&](const std::string& name, double value) {
    events.push_back({"Train/Samples/" + name, value, samples});
  };
  add("train_loss", stats.loss);
  add("lr", stats.lr);
  add("grad_norm", stats.grad_norm);
  if (config.precision == configs::Precision::kFp16) add("loss_scale", stats.loss_scale);
  if (config.wall_clock_breakdown || config.flops_profiler.enabled) {
    const engine::StepTimes& times = stats.times;
    add("elapsed_time_ms_forward", 1000 * times.forward);
    add("elapsed_time_ms_backward", 1000 * (times.backward + times.reduce));
    add("elapsed_time_ms_backward_inner", 1000 * times.backward);
    add("elapsed_time_ms_backward_allreduce", 1000 * times.reduce);
    add("elapsed_time_ms_step", 1000 * times.update);
  }
  return events;
}

std::vector<monitor::Event> eval_events(const EvalRow& row, int64_t samples) {
  return {{"Train/Samples/eval_loss", row.eval_loss, samples}};
}

}  // namespace zeroth::trainer
