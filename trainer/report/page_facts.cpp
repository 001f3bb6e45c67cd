#include "trainer/report/page_facts.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "configs/loader.h"

namespace zeroth::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMib = 1024.0 * 1024.0;

// Every value below `json` with its path: "optimizer.params.lr".
void flatten(const Json& json, const std::string& path, const configs::Origins& origins,
             std::vector<monitor::PageFacts::Value>& values) {
  for (const auto& [key, value] : json.items()) {
    const std::string inner = path.empty() ? key : path + "." + key;
    if (value.is_object()) {
      flatten(value, inner, origins, values);
      continue;
    }
    const auto origin = origins.find(inner);
    values.push_back({.key = inner,
                      .value = value.is_string() ? value.get<std::string>() : value.dump(),
                      .origin = origin == origins.end() ? "" : origin->second});
  }
}

std::string title_of(const Flags& flags) {
  const auto path = std::filesystem::path(flags.model).lexically_normal();
  const auto name = path.has_filename() ? path.filename() : path.parent_path().filename();
  return name.string();
}

}  // namespace

monitor::PageFacts page_facts(const RunPlan& plan, const SummaryLines& summary,
                              TitledLines environment) {
  monitor::PageFacts facts{.title = title_of(plan.flags),
                           .total_steps = plan.samples.total_steps,
                           .summary = {},
                           .config = {},
                           .environment = std::move(environment)};
  for (const SummaryLine& line : summary) facts.summary.emplace_back(line.title, line.text);
  flatten(own_json(configs::to_json(plan.config)), "", plan.origins, facts.config);
  return facts;
}

monitor::PageStep page_step(const StepRow& row, const device::MemoryUse& memory) {
  const engine::StepStats& stats = row.stats;
  const StepSplit split = split_of(stats);
  return {.step = stats.step,
          .loss = stats.loss,
          .lr = stats.lr,
          .grad_norm = stats.grad_norm,
          .tokens_per_s = static_cast<double>(stats.tokens) / row.step_s,
          .peak_share = row.peak_share,
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

}  // namespace zeroth::trainer
