// What flags request besides the values of the configuration: monitors, and what a run may do by
// itself.
#include "trainer/run_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine/machine_id.h"
#include "base/text/diagnostics.h"
#include "base/text/units.h"
#include "configs/schema/keys.h"
#include "model/hf/model_directory.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

// Returns a name like "Nov23_13-36-30_node7".
std::string new_run_name() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%b%d_%H-%M-%S", &parts);
  return fmt::format("{}_{}", text.data(), machine_name());
}

// Returns how a service imports the files in `directory`.
std::string import_hint(const std::vector<std::string>& services, const fs::path& directory) {
  const auto names_service = [&](const char* name) {
    return std::find(services.begin(), services.end(), name) != services.end();
  };
  std::vector<std::string> commands;
  if (names_service("wandb")) {
    commands.push_back(fmt::format("`wandb sync --sync-tensorboard {}`", directory.string()));
  }
  if (names_service("swanlab")) {
    commands.push_back(
        fmt::format("`swanlab convert -t tensorboard --tb-log-dir {}`", directory.string()));
  }
  if (commands.size() < services.size()) {
    commands.emplace_back("the service's own import of TensorBoard's files or of CSV files");
  }
  return fmt::format("{} is imported by {}", directory.string(), fmt::join(commands, " and "));
}

// Warns that no service is reached. `source`: "--report_to wandb mlflow", or the key.
void warn_about_services(const std::string& source, const std::vector<std::string>& services,
                         const fs::path& directory, configs::Diagnostics& notes) {
  warn(notes, source.starts_with("--") ? "--report_to" : source,
       "{}: no service is reached from here; the curves go to files for TensorBoard and to CSV "
       "files. {}",
       source, import_hint(services, directory));
}

// Adds one warning about the services that --report_to names, and one for each section that it does
// not name. Trainer's name for the section "comet" is comet_ml.
void warn_about_services(const Flags& flags, const fs::path& directory,
                         configs::Resolved& resolved) {
  const std::vector<std::string>& named = flags.report_to.services;
  if (!named.empty()) {
    warn_about_services(fmt::format("--report_to {}", fmt::join(named, " ")), named, directory,
                        resolved.notes);
  }
  for (const std::string& section : resolved.services) {
    std::erase_if(resolved.notes, [&](const auto& note) { return note.key == section; });
    const bool is_named = std::any_of(named.begin(), named.end(), [&](const std::string& name) {
      return name == section || name == section + "_ml";
    });
    if (!is_named) warn_about_services(section, {section}, directory, resolved.notes);
  }
}

// A description of what the run does, which ends the flag's text; unset if the request is
// fulfilled.
using Mismatch = std::optional<std::string>;

Mismatch check_precision(const ResolvedRun& run, const std::string& requested) {
  const auto precision = value_of(run.config, "data_types.param_dtype").get<std::string>();
  if (precision == requested) return std::nullopt;
  return fmt::format("{}; --{} sets both", precision, requested);
}

Mismatch full_bf16(const ResolvedRun& run, const std::string& /*value*/) {
  return check_precision(run, "bf16");
}

Mismatch full_fp16(const ResolvedRun& run, const std::string& /*value*/) {
  return check_precision(run, "fp16");
}

Mismatch data_seed(const ResolvedRun& run, const std::string& value) {
  if (parse_number<uint64_t>(value) == run.config.seed) return std::nullopt;
  return fmt::format("{}", run.config.seed);
}

Mismatch same_model_directory(const ResolvedRun& run, const std::string& value) {
  try {
    std::error_code unknown;
    const auto directory = model::find_model_directory(value);
    if (fs::equivalent(directory, run.flags.model, unknown)) return std::nullopt;
  } catch (const Error&) {
    // The value names another directory.
  }
  return run.flags.model;
}

// Fulfilled with evaluation data: run_clm.py splits the training data only without it.
Mismatch split(const ResolvedRun& run, const std::string& /*value*/) {
  if (run.flags.has_eval_data()) return std::nullopt;
  return "";
}

// Fulfilled without text files: for run_clm.py line breaks only matter in those.
Mismatch joined_lines(const ResolvedRun& run, const std::string& /*value*/) {
  const auto is_text = [](const std::string& path) { return path.ends_with(".txt"); };
  if (std::ranges::none_of(run.flags.data, is_text) &&
      std::ranges::none_of(run.flags.eval_data, is_text)) {
    return std::nullopt;
  }
  return "";
}

// Fulfilled unless the file has another optimizer.
Mismatch optimizer(const ResolvedRun& run, const std::string& value) {
  const auto type = value_of(run.config, "optimizer.type").get<std::string>();
  if (type == find_hf_optimizer(value)->type) return std::nullopt;
  return fmt::format("; here it is {}", type);
}

// Fulfilled if the means are equal: with one rank, or if a micro-batch is all that a rank has.
Mismatch means_of_ranks(const ResolvedRun& run, const std::string& /*value*/) {
  const bool of_micro_batches = run.config.loss_mean == configs::LossMean::kMicroBatch;
  const bool one_micro_batch = !run.config.batch.accumulates();
  if (run.data_parallel_size() == 1 || (of_micro_batches && one_micro_batch)) return std::nullopt;
  return fmt::format("{}; --loss-mean micro-batch takes the mean of means",
                     run.data_parallel_size());
}

Mismatch order(const ResolvedRun& run, const std::string& value) {
  if (equals_ignoring_case(value, "group_by_length")) {
    if (run.flags.group_by_length) return std::nullopt;
    return "; --group-by-length does that";
  }
  if (equals_ignoring_case(value, "random") == run.flags.shuffle) return std::nullopt;
  return run.flags.shuffle ? "; here they are shuffled" : "; here they are not shuffled";
}

constexpr std::pair<std::string_view, Mismatch (*)(const ResolvedRun&, const std::string&)>
    kChecks[] = {{"bf16_full_eval", full_bf16},
                 {"fp16_full_eval", full_fp16},
                 {"data_seed", data_seed},
                 {"tokenizer_name", same_model_directory},
                 {"config_name", same_model_directory},
                 {"validation_split_percentage", split},
                 {"keep_linebreaks", joined_lines},
                 {"optim", optimizer},
                 {"average_tokens_across_devices", means_of_ranks},
                 {"train_sampling_strategy", order}};

}  // namespace

RequestedMonitors request_monitors(const Flags& flags, bool resumes, configs::Resolved& resolved) {
  const ReportTo& report = flags.report_to;
  const bool services = !report.services.empty() || !resolved.services.empty();
  RequestedMonitors requested;
  if (!report.tensorboard && !services) {
    if (!report.directory.empty()) {
      note(resolved.notes, "--logging_dir",
           "--logging_dir: no effect without --report_to tensorboard");
    }
    return requested;
  }
  configs::MonitorConfig files{.enabled = true, .output_path = report.directory, .job_name = ""};
  if (report.directory.empty()) {
    files.output_path = (fs::path(flags.output) / "runs").string();
    files.job_name = requested.run_name = new_run_name();
  }
  const fs::path directory = files.job_name.empty() ? fs::path(files.output_path)
                                                    : fs::path(files.output_path) / files.job_name;
  requested.tensorboard = {.directory = directory, .origin = "--report_to tensorboard"};
  if ((report.csv || services) && !resolved.config.csv_monitor.enabled) {
    resolved.config.csv_monitor = files;
    for (const char* field : {"enabled", "output_path", "job_name"}) {
      resolved.origins[fmt::format("csv_monitor.{}", field)] = "--report_to";
    }
  }
  const bool continues = resumes || flags.resume.is_on();
  warn_about_services(flags, continues ? fs::path(files.output_path) : directory, resolved);
  return requested;
}

void check_hf_requests(const ResolvedRun& run) {
  std::vector<std::string> errors;
  for (const HfRequest& request : run.flags.hf_requests) {
    const auto* const check =
        std::find_if(std::begin(kChecks), std::end(kChecks),
                     [&](const auto& one) { return one.first == request.flag->name; });
    ZEROTH_CHECK(check != std::end(kChecks), "no check compares {}", request.flag->name);
    const Mismatch mismatch = check->second(run, request.value);
    if (mismatch) errors.push_back(request.refusal() + *mismatch);
  }
  if (!errors.empty()) throw Error("{}", listed(errors));
}

}  // namespace zeroth::trainer
