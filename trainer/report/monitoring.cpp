#include "trainer/report/monitoring.h"

#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "base/json/json.h"
#include "base/json/json_flat.h"
#include "configs/resolve.h"
#include "trainer/report/config_text.h"

namespace zeroth::trainer {
namespace {

constexpr double kMib = 1024.0 * 1024.0;

// Returns the output's name, which distinguishes runs of one model.
std::string page_title(const Flags& flags) {
  const auto path = std::filesystem::absolute(flags.output).lexically_normal();
  const auto name = path.has_filename() ? path.filename() : path.parent_path().filename();
  return name.string();
}

}  // namespace

monitor::PageFacts page_facts(const RunPlan& plan, const SummaryLines& summary,
                              TitledLines environment) {
  monitor::PageFacts facts{.title = page_title(plan.flags),
                           .total_steps = plan.samples.total_steps,
                           .summary = {},
                           .config = {},
                           .environment = std::move(environment),
                           .rounds = {}};
  for (const SummaryLine& line : summary) facts.summary.emplace_back(line.title, line.text);
  const RunConfig run = run_config(plan);
  for (FlatValue& value : flat_values(parse_trusted_json(configs::to_json(run.config)))) {
    const auto origin = run.origins.find(value.path);
    facts.config.push_back({.key = value.path,
                            .value = std::move(value.text),
                            .origin = origin == run.origins.end() ? "" : origin->second});
  }
  return facts;
}

monitor::PageStep page_step(const StepRow& row, const device::MemoryUse& memory) {
  const engine::StepStats& stats = row.stats;
  const StepSplit split = split_step_time(stats);
  return {.step = stats.step,
          .loss = stats.loss,
          .lr = stats.lr,
          .grad_norm = stats.grad_norm,
          .tokens_per_s = static_cast<double>(stats.tokens) / row.step_s,
          .peak_share = row.mfu,
          .memory_mib = static_cast<double>(memory.host) / kMib,
          .gpu_mib = static_cast<double>(memory.device_peak) / kMib,
          .data_s = stats.times.data,
          .forward_s = stats.times.forward,
          .backward_s = stats.times.backward,
          .reduce_s = stats.times.reduce,
          .update_s = stats.times.update,
          .compute_s = split.compute_s,
          .communication_s = split.communication_s,
          .waiting_s = split.waiting_s};
}

std::vector<monitor::Event> step_events(const StepRow& row, const configs::Config& config,
                                        int64_t samples) {
  const engine::StepStats& stats = row.stats;
  std::vector<monitor::Event> events;
  const auto add = [&](const std::string& name, double value) {
    events.push_back({"Train/Samples/" + name, value, samples});
  };
  add("train_loss", stats.loss);
  add("lr", stats.next_lr);
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

std::vector<monitor::Event> trainer_events(const nlohmann::json& row) {
  constexpr std::string_view kEval = "eval_";
  std::vector<monitor::Event> events;
  if (row.is_null()) return events;
  const auto step = row.at("step").get<int64_t>();
  for (const auto& [key, value] : row.items()) {
    if (key == "step") continue;
    const bool of_eval = key.starts_with(kEval);
    const double number =
        value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    events.push_back({of_eval ? "eval/" + key.substr(kEval.size()) : "train/" + key, number, step});
  }
  return events;
}

}  // namespace zeroth::trainer
