// A run's numbers in the form of monitors and the page, and the facts beside the page's curves.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "configs/config.h"
#include "monitor/monitor.h"
#include "monitor/run_page.h"
#include "trainer/report/metrics.h"
#include "trainer/report/summary.h"

namespace zeroth::trainer {

struct RunPlan;

using TitledLines = std::vector<std::pair<std::string, std::string>>;  // title, text

// Returns versions, machine, ranks, directory and command line of this process. `threads`: of this
// rank.
TitledLines environment_lines(const comm::DeviceMesh& mesh, int threads);

// Returns arguments quoted for a shell.
std::string command_text(const std::vector<std::string>& arguments);

monitor::PageFacts page_facts(const RunPlan& plan, const SummaryLines& summary,
                              TitledLines environment);

// Returns the values for RunPage::step(): those of step_values(), the resident memory and the peak
// of the GPU's.
nlohmann::ordered_json page_step(const StepRow& row, const device::MemoryUse& memory);

// Returns Train/Samples/{train_loss, lr, grad_norm}; also loss_scale with fp16, and
// elapsed_time_ms_* with wall_clock_breakdown or flops_profiler. As in DeepSpeed, lr is the rate of
// the next step. `samples`: trained so far over all ranks.
std::vector<monitor::Event> step_events(const StepRow& row, const configs::Config& config,
                                        int64_t samples);

// Returns Train/Samples/eval_loss.
std::vector<monitor::Event> eval_events(const EvalRow& row, int64_t samples);

// Returns the events that transformers' TensorBoardCallback makes of a row of Trainer's
// log_history: train/loss, train/learning_rate, eval/loss, ... over its step. Returns none for a
// null row.
std::vector<monitor::Event> trainer_events(const nlohmann::json& row);

}  // namespace zeroth::trainer
