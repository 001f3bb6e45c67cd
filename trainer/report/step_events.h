// A run's numbers as the events of DeepSpeed's monitors.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/config.h"
#include "monitor/monitor.h"
#include "trainer/report/metrics.h"

namespace zeroth::trainer {

// Train/Samples/{train_loss, lr, grad_norm}; loss_scale with fp16; elapsed_time_ms_* with
// wall_clock_breakdown or flops_profiler, as DeepSpeed. `samples`: trained so far over all ranks.
std::vector<monitor::Event> step_events(const StepRow& row, const configs::Config& config,
                                        int64_t samples);

// Train/Samples/eval_loss.
std::vector<monitor::Event> eval_events(const EvalRow& row, int64_t samples);

}  // namespace zeroth::trainer
