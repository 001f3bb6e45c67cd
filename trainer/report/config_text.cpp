#include "trainer/report/config_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/text/printable.h"
#include "configs/resolve.h"

namespace zeroth::trainer {

namespace {

// FlagLines builds one line per flag with its value and the origin of the value.
class FlagLines {
 public:
  template <typename T>
  void add(std::string_view flag, const T& value, std::string_view origin) {
    text_ += fmt::format("// {:<55}  {}\n", fmt::format("{}{}", flag, value), origin);
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

std::string_view origin(bool given, std::string_view otherwise = "default") {
  return given ? "command line" : otherwise;
}

constexpr std::string_view kTrainerDefault = "Trainer's default";

std::string flags_without_key(const RunPlan& plan) {
  const configs::Config& config = plan.config;
  const Flags& flags = plan.flags;
  FlagLines lines;
  lines.add("--seed ", config.seed, origin(flags.values.seed.has_value()));
  lines.add("--seq-len ", plan.samples.seq_len, origin(flags.seq_len || flags.max_length, "model"));
  if (plan.samples.total_steps > 0) {
    lines.add("--steps ", plan.samples.total_steps,
              origin(flags.steps.has_value(), "epochs of the data"));
  }
  if (const std::string directory = plan.monitors.tensorboard.directory.string();
      !directory.empty()) {
    lines.add("--logging_dir ", directory,
              origin(!flags.report_to.directory.empty(), "a folder of this run, for --report_to"));
  }
  const int64_t every = config.recompute.every_nth_block;
  if (every > 0) lines.add("--gradient-checkpointing=", every, origin(true));
  if (config.scheduler.kind == configs::SchedulerConfig::Kind::kHuggingFace) {
    const configs::HfSchedule& schedule = config.scheduler.hf;
    lines.add("--lr_scheduler_type ", to_string(schedule.type),
              origin(flags.values.schedule.has_value(), kTrainerDefault));
    if (!flags.values.schedule_kwargs.empty()) {
      lines.add("--lr_scheduler_kwargs ", flags.values.schedule_kwargs, origin(true));
    }
    lines.add("--warmup-steps ", schedule.warmup_steps,
              origin(flags.values.warmup_steps || flags.values.warmup_ratio));
  }
  if (config.optimizer.no_decay) {
    lines.add("--no-decay", "", origin(flags.values.no_decay.has_value(), kTrainerDefault));
  }
  const model::ModelSpec& spec = plan.spec;
  const double dropout =
      std::max({spec.embedding_dropout, spec.attention_dropout, spec.residual_dropout});
  if (config.dropout || dropout > 0) {
    lines.add("--dropout ", config.dropout.value_or(dropout),
              origin(config.dropout.has_value(), "maximum of the model"));
  }
  const bool tokens = config.loss_mean == configs::LossMean::kToken;
  lines.add("--loss-mean ", tokens ? "token" : "micro-batch",
            origin(flags.values.loss_mean.has_value()));
  const bool skips = config.on_non_finite == configs::OnNonFinite::kSkip;
  lines.add("--on-non-finite ", skips ? "skip" : "fail",
            origin(flags.values.on_non_finite.has_value()));
  return std::move(lines).text();
}

void add_comment(std::string& text, std::string_view title, const std::string& line) {
  text += fmt::format("// {:<10} {}\n", title, printable(line));
}

}  // namespace

RunConfig run_config(const RunPlan& plan) {
  RunConfig run{plan.config, plan.origins};
  int64_t& size = run.config.zero.offload_param.buffer_size_elements;
  if (size != configs::kBufferSizeAsNeeded || plan.estimate.param_buffer_elements == 0) return run;
  size = plan.estimate.param_buffer_elements;
  run.origins["zero_optimization.offload_param.buffer_size"] = "the model's largest shard";
  return run;
}

std::string config_text(const RunPlan& plan, const std::vector<std::string>& notes) {
  const RunConfig run = run_config(plan);
  std::string text =
      fmt::format("// Flags without a key in this file:\n{}{}\n", flags_without_key(plan),
                  configs::to_json(run.config, run.origins));
  using Kind = configs::Diagnostic::Kind;
  for (const std::string& note : diagnostic_lines(plan.notes, Kind::kNote))
    add_comment(text, "note", note);
  for (const std::string& note : notes) add_comment(text, "note", note);
  for (const std::string& warning : diagnostic_lines(plan.notes, Kind::kWarning)) {
    add_comment(text, "warning", warning);
  }
  return text;
}

}  // namespace zeroth::trainer
