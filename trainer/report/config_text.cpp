#include "trainer/report/config_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/text/printable.h"
#include "configs/resolve.h"
#include "data/samples/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "trainer/report/summary.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

std::string_view origin(bool given, std::string_view otherwise = "default") {
  return given ? "command line" : otherwise;
}

constexpr std::string_view kTrainerDefault = "Trainer's default";

// Returns one line per flag, with its value and the origin of the value.
std::string flags_without_key(const RunPlan& plan) {
  const configs::Config& config = plan.config;
  const Flags& flags = plan.flags;
  std::string lines;
  const auto add = [&](std::string_view flag, const auto& value, std::string_view value_origin) {
    lines += fmt::format("// {:<55}  {}\n", fmt::format("{}{}", flag, value), value_origin);
  };
  add("--seed ", config.seed, origin(flags.values.seed.has_value()));
  add("--seq-len ", plan.samples.seq_len, origin(flags.seq_len || flags.max_length, "model"));
  if (plan.samples.total_steps > 0) {
    add("--steps ", plan.samples.total_steps,
        origin(flags.steps.has_value(), "epochs of the data"));
  }
  if (const std::string directory = plan.monitors.tensorboard.directory.string();
      !directory.empty()) {
    add("--logging_dir ", directory,
        origin(!flags.report_to.directory.empty(), "a folder of this run, for --report_to"));
  }
  const int64_t every = config.recompute.every_nth_block;
  if (every > 0) add("--gradient-checkpointing=", every, origin(true));
  if (config.scheduler.is_hugging_face()) {
    const configs::HfSchedule& schedule = config.scheduler.hf;
    add("--lr_scheduler_type ", to_string(schedule.type),
        origin(flags.values.schedule.has_value(), kTrainerDefault));
    if (!flags.values.schedule_kwargs.empty()) {
      add("--lr_scheduler_kwargs ", flags.values.schedule_kwargs, origin(true));
    }
    add("--warmup-steps ", schedule.warmup_steps,
        origin(flags.values.warmup_steps || flags.values.warmup_ratio));
  }
  if (config.optimizer.no_decay) {
    add("--no-decay", "", origin(flags.values.no_decay.has_value(), kTrainerDefault));
  }
  const model::ModelSpec& spec = plan.spec;
  const double dropout =
      std::max({spec.embedding_dropout, spec.attention_dropout, spec.residual_dropout});
  if (config.dropout || dropout > 0) {
    add("--dropout ", config.dropout.value_or(dropout),
        origin(config.dropout.has_value(), "maximum of the model"));
  }
  const bool tokens = config.loss_mean == configs::LossMean::kToken;
  add("--loss-mean ", tokens ? "token" : "micro-batch", origin(flags.values.loss_mean.has_value()));
  const bool skips = config.on_non_finite == configs::OnNonFinite::kSkip;
  add("--on-non-finite ", skips ? "skip" : "fail", origin(flags.values.on_non_finite.has_value()));
  return lines;
}

}  // namespace

std::string defaults_line(const RunPlan& plan) {
  const Flags& flags = plan.flags;
  if (!flags.values.for_trainer || !plan.trains()) return "";
  std::vector<std::string> defaults;
  if (!flags.steps && !flags.epochs) {
    defaults.push_back(fmt::format("{:g} epochs", configs::defaults_for(flags.values).epochs));
  }
  const configs::SchedulerConfig& scheduler = plan.config.scheduler;
  if (!flags.values.schedule && scheduler.is_hugging_face()) {
    defaults.push_back(fmt::format("{} decay of the rate", to_string(scheduler.hf.type)));
  }
  if (plan.config.optimizer.no_decay && !flags.values.no_decay) {
    defaults.emplace_back("no weight decay of norms and biases");
  }
  if (plan.samples.epoch_positions > plan.samples.epoch_samples) {
    defaults.emplace_back("a short step at the end of an epoch");
  }
  if (defaults.empty()) return "";
  return fmt::format("Hugging Face Trainer's, whose flags the command line uses: {}",
                     fmt::join(defaults, ", "));
}

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
  const auto add_comments = [&](std::string_view title, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      text += fmt::format("// {:<10} {}\n", title, printable(line));
    }
  };
  using Kind = configs::Diagnostic::Kind;
  add_comments("note", diagnostic_lines(plan.notes, Kind::kNote));
  add_comments("note", notes);
  add_comments("warning", diagnostic_lines(plan.notes, Kind::kWarning));
  return text;
}

void inspect_samples(const RunPlan& plan, bool colored,
                     const std::function<void(std::string_view)>& print,
                     const std::function<void(std::string_view)>& print_error) {
  const Flags& flags = plan.flags;
  const Samples& samples = plan.samples;
  const data::Dataset& dataset = samples.train ? *samples.train : *samples.eval;
  std::optional<data::Tokenizer> tokenizer;
  std::error_code unknown;
  if (std::filesystem::exists(std::filesystem::path(flags.model) / "tokenizer.json", unknown)) {
    tokenizer.emplace(data::Tokenizer::load(flags.model));
  }
  const data::Tokenizer* const known = tokenizer ? &*tokenizer : nullptr;
  const int64_t count = std::min(flags.inspect_samples.value_or(0), dataset.size());
  const auto& print_note = flags.inspect_json ? print_error : print;
  print_note(printable(data_line(samples.train ? flags.data : eval_files(flags), dataset)) + '\n');
  constexpr std::string_view kDataKeys[] = {
      "--data",          "--seq-len",       "--long-text",         "--train-on",
      "--chat-template", "--on-bad-record", "--max_train_samples", "--packing"};
  for (const configs::Diagnostic& note : plan.notes) {
    if (std::ranges::count(kDataKeys, note.key) > 0) print_note(printable(note.text) + '\n');
  }
  print_note(data::length_histogram(dataset));
  for (int64_t i = 0; i < count; ++i) {
    print(flags.inspect_json ? data::sample_json(dataset, i, known) + '\n'
                             : '\n' + data::describe_sample(dataset, i, known, colored));
  }
}

}  // namespace zeroth::trainer
