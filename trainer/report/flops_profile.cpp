#include "trainer/report/flops_profile.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"
#include "comm/cpu_collectives.h"
#include "engine/step/schedule.h"
#include "model/kernels/matrix_product.h"
#include "zero/dtype.h"

namespace zeroth::trainer {
namespace {

// Returns -infinity if the device is too full for the measurement: the sum over ranks is unknown
// then.
double local_peak(torch::Dtype dtype, torch::Device device) {
  try {
    return model::measure_matrix_peak(dtype, device);
  } catch (const c10::OutOfMemoryError&) {
    return -std::numeric_limits<double>::infinity();
  }
}

// A row of the table: a block, or several of one type.
struct ProfileRow {
  std::string name;
  int64_t count = 1;
  int64_t parameters = 0;
  double flops = 0;            // forward
  double recompute_flops = 0;  // those of `flops` that backward repeats
  double forward = 0;
  double backward = 0;
};

std::string scaled(double value, const char* unit) {
  for (const char* prefix : {"", "K", "M", "G", "T"}) {
    if (value < 1000) return fmt::format("{:.3g} {}{}", value, prefix, unit);
    value /= 1000;
  }
  return fmt::format("{:.3g} P{}", value, unit);
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.2f} ms", 1000 * seconds);
}

std::string rate(double flops, double seconds) {
  return seconds > 0 ? scaled(flops / seconds, "FLOPS") : "-";
}

// Returns the blocks, with what backward recomputes of each one, or with the configured factor.
std::vector<ProfileRow> block_rows(const engine::StepStats& stats, const ProfileFacts& facts) {
  const std::vector<double> flops = model::block_flops_per_token(facts.spec, facts.seq_len);
  ZEROTH_CHECK(flops.size() == stats.blocks.size(), "{} blocks, {} known", stats.blocks.size(),
               flops.size());
  // Each block is computed by the ranks of its stage.
  const auto ranks = static_cast<double>(facts.world_size / facts.config.pipeline.stages);
  const double tokens = static_cast<double>(stats.tokens) / ranks;
  std::vector<ProfileRow> rows;
  for (size_t i = 0; i < flops.size(); ++i) {
    const engine::BlockTime& block = stats.blocks[i];
    rows.push_back({.name = block.label,
                    .parameters = block.parameters,
                    .flops = flops[i] * tokens,
                    .forward = block.forward,
                    .backward = block.backward});
  }
  const double factor = facts.config.flops_profiler.recompute_fwd_factor;
  for (const auto& chunk :
       engine::plan_step(engine::PipelinePartition::one_rank(
                             rows.size(), configs::PipelineConfig::Schedule::k1F1B),
                         facts.config, 1)
           .chunks) {
    for (const auto& segment : chunk) {
      for (size_t i = segment.first; i < segment.end; ++i) {
        rows[i].recompute_flops = rows[i].flops * (factor > 0 ? factor : segment.recompute ? 1 : 0);
      }
    }
  }
  return rows;
}

// Merges the blocks of each type: "layers.3" is of type "layers".
std::vector<ProfileRow> by_type(const std::vector<ProfileRow>& blocks) {
  std::vector<ProfileRow> types;
  for (const ProfileRow& block : blocks) {
    const std::string type = block.name.substr(0, block.name.find('.'));
    auto found = std::find_if(types.begin(), types.end(),
                              [&](const ProfileRow& row) { return row.name == type; });
    if (found == types.end()) found = types.insert(found, {.name = type, .count = 0});
    ++found->count;
    found->parameters += block.parameters;
    found->flops += block.flops;
    found->recompute_flops += block.recompute_flops;
    found->forward += block.forward;
    found->backward += block.backward;
  }
  return types;
}

// Returns a table of the slowest rows, at most `max_rows` of them. Forward and backward compute
// `factor` times what forward does.
std::string table(std::vector<ProfileRow> rows, size_t max_rows, double factor) {
  std::stable_sort(rows.begin(), rows.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return a.forward + a.backward > b.forward + b.backward;
  });
  double time = 0;
  for (const ProfileRow& row : rows) time += row.forward + row.backward;
  const size_t shown = std::min(max_rows, rows.size());
  std::string text =
      fmt::format("  {:<16} {:>6} {:>11} {:>13} {:>12} {:>12} {:>7} {:>14}\n", "block", "count",
                  "parameters", "fwd FLOPs", "forward", "backward", "time", "achieved");
  for (const ProfileRow& row : std::vector<ProfileRow>(rows.begin(), rows.begin() + shown)) {
    const double seconds = row.forward + row.backward;
    text += fmt::format("  {:<16} {:>6} {:>11} {:>13} {:>12} {:>12} {:>6.1f}% {:>14}\n", row.name,
                        row.count, format_count(row.parameters), scaled(row.flops, "FLOPs"),
                        milliseconds(row.forward), milliseconds(row.backward),
                        time > 0 ? 100 * seconds / time : 0,
                        rate(factor * row.flops + row.recompute_flops, seconds));
  }
  if (shown < rows.size()) text += fmt::format("  ({} more)\n", rows.size() - shown);
  return text;
}

std::string totals(const engine::StepStats& stats, const ProfileFacts& facts, double forward,
                   double backward_factor) {
  const engine::StepTimes& times = stats.times;
  const double backward = backward_factor * forward;
  const double step = times.data + times.forward + times.backward + times.reduce + times.update;
  std::string text;
  const auto add = [&](const char* title, const std::string& value, const std::string& more = "") {
    text += fmt::format("  {:<12} {:>13}  {}\n", title, value, more);
  };
  add("parameters", format_count(facts.num_parameters));
  add("forward", scaled(forward, "FLOPs"),
      fmt::format("in {}: {}", milliseconds(times.forward), rate(forward, times.forward)));
  add("backward", scaled(backward, "FLOPs"),
      fmt::format("in {}: {} ({:.3g} x forward)", milliseconds(times.backward),
                  rate(backward, times.backward), backward_factor));
  add("reduce", "", fmt::format("in {}", milliseconds(times.reduce)));
  add("update", "", fmt::format("in {}", milliseconds(times.update)));
  add("step", scaled(forward + backward, "FLOPs"),
      fmt::format("in {}: {}", milliseconds(step), rate(forward + backward, step)));
  return text;
}

}  // namespace

MfuMeter::MfuMeter(model::ModelSpec spec, int64_t rows, bool frozen)
    : spec_(std::move(spec)), rows_(rows), factor_(frozen ? 2 : 3) {}

void MfuMeter::measure(torch::Dtype dtype, comm::DeviceMesh& mesh) {
  double sum = local_peak(dtype, mesh.device());
  comm::all_reduce_values({&sum, 1}, comm::ReduceOp::kSum, "matrix peaks", mesh);
  peak_ = std::max(0.0, sum);
}

double MfuMeter::measure_step(const engine::StepStats& stats, double seconds) {
  const std::vector<double> forward =
      model::block_flops_per_token(spec_, std::max<int64_t>(1, stats.tokens / rows_));
  const double head = forward.back();
  const double body = std::accumulate(forward.begin(), forward.end(), 0.0) - head;
  const double flops = factor_ * (body * static_cast<double>(stats.tokens) +
                                  head * static_cast<double>(stats.num_label_tokens));
  const double rate = flops / seconds;
  if (rate > peak_) peak_ = 0;
  return peak_ == 0 ? std::numeric_limits<double>::quiet_NaN() : rate / peak_;
}

std::string profile_text(const engine::StepStats& stats, const ProfileFacts& facts) {
  const configs::FlopsProfilerConfig& config = facts.config.flops_profiler;
  const std::vector<ProfileRow> blocks = block_rows(stats, facts);
  double forward = 0, recompute_flops = 0;
  for (const ProfileRow& block : blocks) {
    forward += block.flops;
    recompute_flops += block.recompute_flops;
  }
  // A product beside a frozen weight has no gradient of the weight to compute.
  const double products = facts.config.lora.enabled ? 1 : 2;
  const double backward_factor = products + (forward > 0 ? recompute_flops / forward : 0);
  std::string text = fmt::format(
      "flops profile of step {}, of one of {} ranks: {} x {} samples of at most {} positions\n",
      stats.step, facts.world_size, facts.batch.micro_steps, facts.batch.micro_batch,
      facts.seq_len);
  text += totals(stats, facts, forward, backward_factor);
  // Depth 0 is the full model, 1 its types of blocks, 2 its blocks.
  const size_t top = static_cast<size_t>(std::max<int64_t>(1, config.top_modules));
  const bool innermost = config.module_depth < 0 || config.module_depth >= 2;
  if (config.module_depth != 0) text += table(by_type(blocks), blocks.size(), 1 + products);
  if (innermost) text += table(blocks, config.detailed ? blocks.size() : top, 1 + products);
  return text;
}

void write_profile(const std::string& path, const std::string& text) {
  const auto directory = std::filesystem::path(path).parent_path();
  std::error_code failure;
  if (!directory.empty()) std::filesystem::create_directories(directory, failure);
  errno = 0;
  std::ofstream file(path, text.empty() ? std::ios::app : std::ios::trunc);
  file << text << std::flush;
  if (!file) {
    throw Error("flops_profiler.output_file \"{}\" cannot be written: {}", path,
                system_reason(failure ? failure.value() : errno));
  }
}

}  // namespace zeroth::trainer
